"""The sections on recognition: examples, the worst utterances, confusions, groups."""

from collections.abc import Callable, Sequence

import numpy as np

from asrkit.evaluation.wer import ErrorRate, rate_shown, total
from asrkit.report.html import Html, join, note, section, table, tag
from asrkit.report.players import Players
from asrkit.report.posteriorgram import Example, picture
from asrkit.report.speakers import heard_speakers
from asrkit.report.training import context_phrase, gauge
from asrkit.report.words import Group, Pair, Recognized, by_duration, confusions, grouped

SIGNS = {"substitution": "≠", "deletion": "−", "insertion": "+", "equal": ""}
MOST = 15  # rows of a list of confusions
HANDY_SECONDS = 5.0  # preferred length of an example in a picture


def examples_section(
    utterances: Sequence[Recognized], examples: Sequence[Example], play: Players, chunk: str
) -> Html:
    """Draw a picture of each example, with its recording."""
    figures = []
    for each, example in zip(utterances, examples, strict=True):
        caption = tag("figcaption", tag("bdi", each.id), f" · {about(each)}")
        drawing = tag("div", picture(example), class_="scroll")
        figures.append(tag("figure", caption, drawing, play(example.samples)))
    explained = (
        f"In {context_phrase(chunk)}. A stronger colour is a higher probability; the rest is the"
        " blank's. Under the tokens are the words of the streaming result at the times of their"
        " tokens, and the words of the reference as aligned by the model in full context. Dashed"
        " lines are the ends of chunks, when words are written. Click on a picture to play its"
        " recording from there."
    )
    text = explained if figures else "No examples were requested."
    return section("examples", "Alignments", note(text), *figures)


def about(each: Recognized) -> str:
    errors = f"{counted(each.errors, 'error')} in {counted(each.words, each.counts.unit)}"
    speaker = f" · speaker {each.speaker}" if each.speaker else ""
    return f"{errors} · {each.seconds:.1f} s{speaker}"


def counted(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def evenly_chosen(utterances: Sequence[Recognized], count: int) -> list[Recognized]:
    """Choose utterances of suitable length at evenly spaced error rates, the best first."""
    left = sorted(utterances, key=lambda each: (abs(each.seconds - HANDY_SECONDS), each.id))
    chosen: list[Recognized] = []
    for rate in np.linspace(0.0, max(each.rate for each in left), min(count, len(left))):
        chosen.append(min(left, key=lambda each: abs(each.rate - rate)))
        left.remove(chosen[-1])
    return chosen


def worst(utterances: Sequence[Recognized], count: int) -> list[Recognized]:
    """Return the utterances with most errors; equal numbers are sorted by error rate."""
    wrong = [each for each in utterances if each.errors]
    ranked = sorted(wrong, key=lambda each: (-each.errors, -each.rate, each.id))
    return ranked[:count]


def worst_section(
    utterances: Sequence[Recognized], player_of: Callable[[str], Html], chunk: str
) -> Html:
    """Draw utterances unit by unit."""
    if not utterances:
        return section("worst", "Worst utterances", note("No errors, or none requested."))
    entries = [
        tag(
            "article",
            tag("header", tag("bdi", each.id), tag("span", about(each))),
            pairs(each.pairs),
            player_of(each.id),
            class_="utterance",
        )
        for each in utterances
    ]
    keys = [
        tag("span", f"{SIGNS[kind]} {kind}", class_=f"key {kind}")
        for kind in ("substitution", "deletion", "insertion")
    ]
    explained = note(f"Above: the reference. Below: the result in {context_phrase(chunk)}.")
    return section("worst", "Worst utterances", explained, tag("p", join(keys, " ")), *entries)


def pairs(aligned: Sequence[Pair]) -> Html:
    """Draw the reference over the recognised units, with signs for errors."""
    columns = [
        tag(
            "span",
            tag("span", pair.reference or "·", class_="reference-word"),
            tag("span", pair.hypothesis or "·"),
            tag("small", SIGNS[pair.kind]),
            class_=f"pair {pair.kind}",
            title=None if pair.kind == "equal" else pair.kind,
        )
        for pair in aligned
    ]
    return tag("p", *columns, class_="pairs", dir="auto")


def confusions_section(utterances: Sequence[Recognized], chunk: str) -> Html:
    """Draw tables of the substituted, deleted and inserted units."""
    columns, unit = [], total(each.counts for each in utterances).unit
    for kind, counts in confusions(utterances).items():
        heading = tag("h3", f"{SIGNS[kind]} {kind}s: {counts.total()}")
        rows = [(confused(pair), count) for pair, count in ranked(counts.items())[:MOST]]
        shown = table([unit, "times"], rows) if rows else note("None.")
        more = [note(f"and {len(counts) - MOST} more")] if len(counts) > MOST else []
        columns.append(tag("div", heading, shown, *more))
    where = note(f"In {context_phrase(chunk)}.")
    return section("confusions", "Confusions", where, tag("div", *columns, class_="columns"))


def ranked(counts):  # type: ignore[no-untyped-def]
    """Sort pairs with their counts, the most frequent first, then alphabetically."""
    return sorted(
        counts, key=lambda item: (-item[1], item[0].reference or "", item[0].hypothesis or "")
    )


def confused(pair: Pair) -> Html:
    """Draw the reference's word before the result's, in any direction of writing."""
    return join((tag("bdi", word) for word in pair if word is not None), " → ")


def groups_section(utterances: Sequence[Recognized], chunk: str, start: str | None) -> Html:
    """Draw the error rate by duration and by speaker.

    Args:
        start: model that the training started from.
    """
    rate = total(each.counts for each in utterances)
    speakers = grouped(utterances, lambda each: each.speaker)
    speakers.sort(key=lambda group: (-(group.rate or 0.0), group.name))
    by_speaker = (
        group_table("speaker", speakers, rate)
        if speakers
        else note("The manifest has no speakers.")
    )
    names = {each.speaker for each in utterances if each.speaker}
    heard = [note(heard_speakers(start, names))] if start and names else []
    return section(
        "groups", "By duration and by speaker", note(f"In {context_phrase(chunk)}."),
        tag("h3", "By duration"), group_table("duration", by_duration(utterances), rate),
        tag("h3", "By speaker"), by_speaker, *heard,
    )  # fmt: skip


def group_table(name: str, groups: Sequence[Group], rate: ErrorRate) -> Html:
    """Draw a sortable table; `rate` is that of all groups."""
    end = max(group.rate or 0.0 for group in groups)
    titles = [name, "utterances", "minutes", f"{rate.unit}s", "errors", rate.name]
    buttons: list[object] = [tag("button", title, type="button") for title in titles]
    rows = [
        [
            group.name, group.utterances, f"{group.seconds / 60:.1f}", group.words, group.errors,
            tag("td", rate_shown(group.rate), data_value=f"{group.rate or 0.0:.4f}"),
            gauge(group.rate, end),
        ]
        for group in groups
    ]  # fmt: skip
    return table([*buttons, ""], rows, class_="sortable")
