"""The data doctor's checks: each with what it finds and with what it must not find."""

from typing import Any

import pytest

from asrkit.audio.files import AudioInfo
from asrkit.data.checks import CHECKS, Facts, Finding, Rules, examine
from asrkit.data.checks.facts import Signal
from asrkit.data.recording import Recording
from asrkit.data.text_encoder import TextEncoder
from asrkit.model.head import ctc_frames
from asrkit.text import CharTokenizer, is_visible, normalize
from asrkit.text.marks import marks_in
from tests.data.encoding import ENCODE

RULES = Rules(ENCODE, min_seconds=0.1, max_seconds=30.0)
SIGNAL = Signal(seconds=2.0, rms=0.1, clipped=0.0, digest=b"0")


def utterance(
    manifest: str = "train.jsonl", line: int = 1, signal: dict | None = None,
    header: tuple[int, int, int] | None = (16000, 32000, 1), problem: str | None = None,
    notes: tuple[str, ...] = (), **keys: Any,
) -> Facts:  # fmt: skip
    """A good utterance of two seconds, but for what is named here."""
    values = {"id": f"u{line}", "audio": f"{line}.wav", "text": "yes no"} | keys
    measured = SIGNAL._replace(digest=f"{manifest}{line}".encode())._replace(**(signal or {}))
    return Facts(
        manifest, line, Recording(**values), header and AudioInfo(*header),
        None if problem else measured, problem, notes,
    )  # fmt: skip


def many(count: int = 30, **last: Any) -> list[Facts]:
    return [utterance(line=i) for i in range(1, count)] + [utterance(line=count, **last)]


def two(first: dict, second: dict, manifest: str = "dev.jsonl") -> list[Facts]:
    return [utterance(line=1, **first), utterance(manifest, 2, **second)]


def texts(*train: str, dev: tuple[str, ...] = ()) -> list[Facts]:
    facts = [utterance(line=i, text=text) for i, text in enumerate(train, 1)]
    return facts + [utterance("dev.jsonl", line=i, text=text) for i, text in enumerate(dev, 1)]


def found(facts: list[Facts], check: str, rules: Rules = RULES) -> list[Finding]:
    return [finding for finding in examine(facts, rules) if finding.check.name == check]


def spelled(facts: list[Facts], case: str = "keep") -> Rules:
    """Rules whose tokenizer has the letters of these texts."""
    spell = lambda text: normalize(text, case)  # type: ignore[arg-type] # noqa: E731
    tokenizer = CharTokenizer.train(filter(is_visible, (spell(each.text) for each in facts)))
    return RULES._replace(encode=TextEncoder(tokenizer, spell, ENCODE.num_frames, ctc_frames))


# For each check: what it finds with a part of what it says, and what lies just beside that.
CASES: dict[str, tuple[list[Facts], str, list[Facts]]] = {
    "unreadable": ([utterance(problem="x.wav is empty")], "x.wav is empty", [utterance()]),
    "outside": (
        [utterance(start=1.5, duration=1.0)],
        "1.5 to 2.5 s of a file of 2.00 s",
        [utterance(start=1.0, duration=1.05)],
    ),
    "cut-off": (
        [utterance(signal={"seconds": 1.2})],
        "ends after 1.20 of 2.00 s",
        [
            utterance(signal={"seconds": 1.95}),
            utterance(line=2, duration=1.2, signal={"seconds": 1.2}),
        ],
    ),
    "silent": (
        [utterance(signal={"rms": 0.0})],
        "all samples are equal",
        [utterance(signal={"rms": 0.0004})],
    ),
    "empty-text": ([utterance(text=" \t")], "' \\t'", [utterance(text=" no ")]),
    "unknown": ([utterance(text="yes!")], "not in the vocabulary: '!'", [utterance()]),
    "ctc": (
        [utterance(signal={"seconds": 0.3}, text="noyes noyes")],
        "7 encoder frames, but its labels need 11",
        [utterance(signal={"seconds": 0.3}, text="noyes n")],
    ),
    "limits": (
        [utterance(signal={"seconds": 0.05}, text="n")],
        "0.05 s, not 0.1 to 30",
        [utterance(signal={"seconds": 0.1}, text="n")],
    ),
    "not-read": (
        [utterance(notes=("has 2 audio tracks; track 0 is read",))],
        "has 2 audio tracks",
        [utterance()],
    ),
    "mixed": (
        [utterance(header=(16000, 32000, 2), signal={"mix_db": 1.0})],
        "the mean of 2 channels that differ",
        [
            utterance(header=(16000, 32000, 2), signal={"mix_db": 3.0}),  # twice the same
            utterance(line=2, header=(16000, 32000, 2), channel=1),
        ],
    ),
    "clipped": (
        [utterance(signal={"clipped": 0.02})],
        "2.0% of the samples",
        [utterance(signal={"clipped": 0.0009})],
    ),
    "invisible": (
        [utterance(text="no\u200b yes\ufeff")],
        "U+200B, U+FEFF",
        # A joiner is spelling in Persian, white space is normalised.
        [utterance(text="\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\t\nyes")],
    ),
    "encoding": (
        texts("GrÃ¼n"),
        "'Ã¼' for 'ü' in 'GrÃ¼n'",
        texts("Grün", "naïve café"),
    ),
    "id": (
        [utterance(id="a"), utterance(line=2, id="a")],
        "the id of line 1 too",
        two({"id": "a"}, {"id": "a"}),
    ),
    "audio": (
        [utterance(signal={"digest": b"1"}), utterance(line=2, signal={"digest": b"1"}, text="no")],
        "as u1, but with another text",
        [utterance(signal={"rms": 0.0, "digest": b"1"}) for _ in range(2)],  # silence is silence
    ),
    "pace": (
        many(text="yes no " * 10),
        "25.0/s, the median is 2.5",
        many(text="yes no ny"),
    ),
    "speaker-overlap": (
        two({"speaker": "anna"}, {"speaker": "anna"}),
        "speaker 'anna': 1 here, 1 in train.jsonl",
        [*two({"speaker": "anna"}, {"speaker": "ben"}), *two({}, {})],
    ),
    "capitals": (
        texts("yes", "no", "yes no", "go yes", "Yes no"),
        "'Y' in 'Yes no'",
        texts("Das Haus", "Die Stadt", "von Mallinckrodt kam", "Die USA", "O"),
    ),
    "small-letters": (texts("YES", "NO", "yes"), "'y', 'e', 's' in 'yes'", texts("是", "看 hbo")),
    "some-punctuation": (
        texts("yes", "no", "yes, no.", "no"),
        "',', '.' in 'yes, no.'",
        texts("Ja.", "Nein, nein!", "Ja", "So."),
    ),
}
# Kinds of marks that nobody speaks, with texts that have them.
MARKS = {
    "markup": ["rock &amp; roll", "it&#39;s", "it&#x27;s", "a&nbsp;b", "<b>no</b>",
               "yes<br/>no", "GR&Uuml;N"],
    "address": ["see https://example.com/a?b=1", "www.example.com", "mail me@example.org now",
                "HTTP://EXAMPLE.COM", "go to example.com", "thanks @anna", "so #happy"],
    "annotation": ["<unk>", "yes [laughs]", "{noise} no", "(inaudible)", "*cough* yes", "%uh no",
                   "<NOISE>", "[UNK]", "((unclear))", "++breath++ no", "!SIL", "yes 【笑】",
                   "♪ la la", "_noise_", "/noise/ yes", "＜noise＞", "[no name, 3 words]"],
    "emoji": ["yes 🙂", "no ❤️", "👩‍👩‍👧 yes", "ok :-)", "fine ;)", "ok:)", "1️⃣", "🇩🇪 yes"],
    "digits": ["call 112", "3.5 hours", "２３", "٣", "½ mile", "x²", "B2B", "10:30", "①"],
    "symbols": ["5 %", "$ five", "five €", "a & b", "a+b", "snake_case", "20 °", "either/or",
                "№ one", "≥ two", "＄ one", "© me"],
}  # fmt: skip
SOUND = [
    "don't", "'tis the dogs' bone", "well-known", "l·lustració", "rock 'n' roll", "grün",
    "naïve café", "ёлка и ель", "Ελλάδα", "東京タワー", "नमस्ते", "می\u200cخواهم",
    "ไปดู hbo", "שלום", "صباح الخير",
    "IT-специалист", "O'Neill-Smith", "ä ö ü ß É", "AT M Y",
]  # fmt: skip


def test_every_check_is_tested_and_says_what_to_do() -> None:
    assert {*CASES, *MARKS} == {check.name for check in CHECKS}
    assert all(check.advice for check in CHECKS)


@pytest.mark.parametrize(("kind", "text"), [(k, text) for k in MARKS for text in MARKS[k]])
def test_a_text_with_what_nobody_speaks_is_found_by_its_kind(kind: str, text: str) -> None:
    assert found(texts(text), kind), marks_in(text)


@pytest.mark.parametrize("text", SOUND)
def test_control_spelling_is_sound(text: str) -> None:
    facts = texts(text)
    kinds = {each.check.name for each in examine(facts, spelled(facts))}
    assert not kinds & {*MARKS, "invisible", "unknown"}


def test_dev_has_the_case_of_train() -> None:
    facts = texts("YES", "NO", dev=("yes", "no", "I"))
    assert [each.manifest for each in found(facts, "small-letters")] == ["dev.jsonl"] * 2
    assert found(facts, "small-letters", spelled(facts, "lower")) == []


@pytest.mark.parametrize("check", CASES)
def test_a_check_finds_it_and_nothing_else(check: str) -> None:
    bad, message, good = CASES[check]
    (finding,) = found(bad, check)
    assert message in finding.message
    assert finding.id == bad[finding.line - 1].utterance.id
    assert found(good, check) == []


def test_more_of_what_checks_say() -> None:
    assert found([utterance(text=None)], "empty-text")[0].message == "no text"
    (cancelled,) = found([utterance(header=(16000, 32000, 2), signal={"mix_db": -40.0})], "mixed")
    assert "mix of its 2 channels is 40 dB below that of indep" in cancelled.message
    assert found([utterance(signal={"rms": 0.0001})], "silent")[0].message == "RMS -80 dBFS"
    assert found([utterance(start=3.0)], "outside")
    twice = two({"signal": {"digest": b"1"}}, {"signal": {"digest": b"1"}})
    assert [f.message for f in found(twice, "audio")] == ["as u1 in train.jsonl"]
    slow = utterance(signal={"seconds": 29.0}, text="no")
    assert found([slow], "pace")[0].message.startswith("0.1/s")  # bounds hold without a median
    assert found(many(signal={"seconds": 2.0, "digest": b"x"}), "pace") == []
    unread = [utterance(line=i, problem="missing", audio="x.wav") for i in (1, 2)]
    assert {f.check.name for f in examine(unread, RULES)} == {"unreadable"}


def test_ctc_agrees_with_training() -> None:
    """The same function of the same numbers: what is found here is what training leaves out."""
    for samples in range(1600, 8000, 91):
        findings = found([utterance(signal={"seconds": samples / 16000}, text="noon")], "ctc")
        assert bool(findings) == (ENCODE.why_not("noon", int(samples / 16000 * 16000)) is not None)
