"""The sections on the training: scores and curves."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import yaml

from asrkit.evaluation import Score
from asrkit.evaluation.wer import UNITS, interval_shown, total
from asrkit.evaluation.written import SHARES, lacking, rules_of, share
from asrkit.model_file import ModelFile
from asrkit.report.charts import legend, line_chart
from asrkit.report.html import Html, join, note, section, table, tag
from asrkit.report.tensorboard import Point, Scalar, thinned
from asrkit.training.dataset import hours_of_epoch
from asrkit.training.progress import duration


class Experiment(NamedTuple):
    """The contents of a training's folder, or of a single model file."""

    name: str
    path: Path  # path of the model file
    file: ModelFile
    scalars: dict[str, list[Scalar]]  # logged values, by tag

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def finished(self) -> str | None:
        """The time of the last logged value."""
        logged = [line[-1].time for line in self.scalars.values() if line]
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(max(logged))) if logged else None

    @property
    def steps_per_epoch(self) -> float | None:
        steps, epochs = (self.file.training.get(key) for key in ("steps", "epochs"))
        return steps / epochs if steps and epochs else None


def tiles(scores: dict[str, Score], chunk: str, experiment: Experiment) -> Html:
    """Draw the most important numbers."""
    shown = [(scores[name].words.percent, f"{scores[name].words.name}, {context_phrase(name)}")
             for name in dict.fromkeys(["full", chunk]) if name in scores]  # fmt: skip
    for name, rate in [*scores[chunk].rates.items()][1:]:
        shown.append((rate.percent, f"{name}, {context_phrase(chunk)}"))
    delay = scores[chunk].delay
    if delay is not None:
        shown.append((f"{delay.median:.0f} ms", f"median delay, {context_phrase(chunk)}"))
    shown.append((f"{experiment.file.num_parameters / 1e6:.2f} M", "parameters"))
    seconds = experiment.file.training.get("wall_seconds")
    if seconds is not None:
        shown.append((duration(seconds), "of training"))
    return tag(
        "div", *(tag("div", tag("b", value), tag("span", name), class_="tile")
                 for value, name in shown), class_="tiles",
    )  # fmt: skip


def context_phrase(name: str) -> str:
    return "full context" if name == "full" else f"{name} chunks"


def scores_section(scores: dict[str, Score], decoded: str, experiment: Experiment) -> Html:
    """Draw error rates and delay by chunk size, and facts about the training.

    Args:
        decoded: description of the corpus and the decoding.
    """
    unit_rate, *others = next(iter(scores.values())).rates
    titles = ["chunk", unit_rate, "95 % interval", "sub", "del", "ins", *others, "delay, mean ms",
              "median", "90 %", "last token", ""]  # fmt: skip
    intervals = {name: score.interval for name, score in scores.items()}
    end = max(interval.high if interval else 0.0 for interval in intervals.values())
    rows = []
    for name, score in scores.items():
        words, interval = score.words, intervals[name]
        between = "–" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"
        late = ["–" if ms is None else f"{ms:.0f}" for ms in score.delay or [None] * 4]
        rows.append([
            name, tag("td", tag("b", words.percent)), between,
            words.substitutions, words.deletions, words.insertions,
            *[rate.percent for rate in score.rates.values()][1:], *late,
            gauge(words.rate, end, interval),
        ])  # fmt: skip
    explained = (
        f"On {decoded}. {'CER counts characters, including spaces. ' if others else ''}"
        f"The interval is the {unit_rate}'s, from a bootstrap over utterances; models compared on"
        " the same utterances can differ clearly even if their intervals overlap. A token's delay"
        " is the time from its end, by forced alignment, to the end of the chunk in which it is"
        " written, without computing time."
    )
    return section(
        "scores", "Errors and delay", table(titles, rows), note(explained),
        *written_text(scores, experiment.file), facts(experiment),
    )  # fmt: skip


def written_text(scores: dict[str, Score], file: ModelFile) -> list[Html]:
    """Draw the normalised error rates of written text, and its capitals and marks."""
    found = [(name, score.written) for name, score in scores.items() if score.written]
    if not found:
        return []
    name = total(one.normalized for _, one in found).name
    words = [
        [name, one.normalized.percent, interval_shown(one.interval), scores[name].words.percent]
        for name, one in found
    ]
    marks = [
        [name, mark, *each, *(share(getattr(each, of)) for of in SHARES)]
        for name, one in found for mark, each in one.marks.items()
    ]  # fmt: skip
    explained = (
        f"Normalised by the {rules_of(file)} rules of whisper-normalizer; the written {name} is of"
        " the exact texts. A mark is right at the same word as in the reference, and a capital at"
        f" the same letter. {lacking(file.tokenizer, file.config.text.case) or ''}"
    )
    return [
        tag("h3", "Written text"),
        table(["chunk", f"normalised {name}", "95 % interval", f"written {name}"], words),
        table(["chunk", "mark", "reference", "result", "right", *SHARES], marks),
        note(explained),
    ]


def gauge(rate: float | None, end: float, span: tuple[float, float] | None = None) -> Html:
    """Draw a cell with the rate on a track from 0 to `end`: a bar, or a mark in its interval."""
    percent, marks = 100.0 / max(end, 1e-9), []
    if rate is None:
        pass
    elif span is None:
        marks = [tag("i", style=f"left:0;width:{rate * percent:.1f}%")]
    else:
        low, high = (bound * percent for bound in span)
        marks = [tag("i", class_="span", style=f"left:{low:.1f}%;width:{high - low:.1f}%"),
                 tag("i", class_="at", style=f"left:{rate * percent:.1f}%")]  # fmt: skip
    return tag("td", tag("span", *marks, class_="track"), class_="gauge", aria_hidden="true")


def facts(experiment: Experiment) -> Html:
    """Draw facts from the model file: model, duration of the training, command."""
    file, training = experiment.file, experiment.file.training
    config = experiment.folder / "config.yaml"
    again = f"python -m asrkit.train --config {config}" if config.is_file() else None
    command = training.get("command", again)
    hours, factors = training.get("audio_hours_per_epoch"), file.config.augmentation.speed_factors
    known = {
        "model": experiment.path,
        "finished": experiment.finished,
        "command": command and tag("code", command),
        "vocabulary": f"{file.tokenizer.vocab_size} with the blank, {file.config.text.tokenizer}",
        "epochs": training.get("epochs"),
        "average of epochs": ", ".join(map(str, training.get("averaged_epochs", []))) or None,
        "steps": training.get("steps"),
        "audio in an epoch": hours and hours_of_epoch(hours, factors),
        "training time": training.get("wall_seconds") and duration(training["wall_seconds"]),
    }
    entries = [
        join([tag("dt", name), tag("dd", value)])
        for name, value in known.items() if value is not None
    ]  # fmt: skip
    text = yaml.safe_dump(file.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return join([
        tag("dl", *entries),
        tag("details", tag("summary", "The whole configuration"), tag("pre", text)),
    ])  # fmt: skip


def curves_section(experiment: Experiment) -> Html:
    """Draw loss, learning rate, gradient norm, and error rates and loss on dev, over the steps."""
    scalars, folder = experiment.scalars, experiment.folder / "tensorboard"
    if not any(scalars.values()):
        return section("curves", "Curves", note(f"{folder} has no TensorBoard events."))
    charts = [
        single(tag_, title, scalars[tag_], log, experiment)
        for tag_, title, log in (
            ("loss", "loss per token", True),
            ("learning_rate", "learning rate", False),
            ("gradient_norm", "gradient norm", True),
        )
        if tag_ in scalars
    ]
    canaries = [
        (f"canary_{name}", f"Error rate on {name}", "{:.2f} %")
        for name in experiment.file.config.data.canary
    ]
    rates = [
        (f"{tag_}{name.lower()}", f"{kind}{name} on dev", "{:.2f} %")
        for tag_, kind in (("", ""), ("normalized_", "Normalised ")) for name in UNITS
    ]  # fmt: skip
    for prefix, title, form in (
        *rates,
        ("dev_loss", "Loss per token on dev", "{:.3f}"),
        *canaries,
    ):
        lines = {name.removeprefix(f"{prefix}/"): thinned(line) for name, line in scalars.items()
                 if name.startswith(f"{prefix}/")}  # fmt: skip
        if lines:
            label = title + ", %" * form.endswith("%")
            chart = line_chart(lines, label, describing(experiment, form), dots=True)
            heading = tag("h3", f"{title}, by chunk size")
            charts.append(tag("div", heading, chart, legend(list(lines))))
    return section(
        "curves", "Curves", tag("div", *charts, class_="charts"),
        note("Lines are means of neighbouring steps, bands are their lowest to highest values. "
             "Loss and gradient norm have logarithmic axes."),
    )  # fmt: skip


def single(tag_: str, title: str, line: list[Scalar], log: bool, experiment: Experiment) -> Html:
    points = thinned(line)
    describe = describing(experiment, "{:.3g}")
    chart = line_chart({tag_: points}, title, describe, log=log)
    lost = sum(not math.isfinite(scalar.value) for scalar in line)
    heading = tag("h3", title[0].upper() + title[1:])
    warning = [note(f"{lost} of {len(line)} values are not finite.")] if lost else []
    return tag("div", heading, chart, *warning, class_="single")


def describing(experiment: Experiment, form: str) -> Callable[[Point], str]:
    """Return a function for the tooltip of a point: its value, step and epoch."""
    per_epoch = experiment.steps_per_epoch

    def describe(point: Point) -> str:
        text = form.format(point.value)
        if point.low < point.high:
            text += f" ({form.format(point.low)} to {form.format(point.high)})"
        epoch = f", epoch {point.step / per_epoch:.1f}" if per_epoch else ""
        return f"{text} at step {point.step:.0f}{epoch}"

    return describe
