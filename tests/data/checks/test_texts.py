"""Checks of texts: each kind with inputs that people have, and with texts that are sound."""

import pytest

from asrkit.data.checks import ADVICE, OF_CORPORA, OF_UTTERANCES, Rules, examine
from asrkit.data.dataset import TextEncoder
from asrkit.model.head import ctc_frames
from asrkit.text import CharTokenizer, is_visible, normalize
from asrkit.text.marks import marks_in
from tests.data.checks.test_check import utterance
from tests.data.encoding import ENCODE

FOUND = {
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
    "encoding": ["GrÃ¼n", "donâ€™t", "naÃ¯ve", "Ð¿Ñ\u0080Ð¸Ð²ÐµÑ\u0082"],
    "alphabets": ["SЕVEN", "yеs", "Αlpha", "Straβe", "сolor", "МоscoW"],
    "invisible": ["\ufeffyes", "ye\u200bs", "\u2060yes", "\u202eyes",
                  "soft\u00adhyphen"],
}  # fmt: skip
SOUND = [
    "don't", "'tis the dogs' bone", "well-known", "l·lustració", "rock 'n' roll", "grün",
    "naïve café", "ёлка и ель", "Ελλάδα", "東京タワー", "नमस्ते", "می\u200cخواهم",
    "ไปดู hbo", "שלום", "صباح الخير",
    "IT-специалист", "O'Neill-Smith", "ä ö ü ß É", "AT M Y",
]  # fmt: skip


def kinds(text: str) -> set[str]:
    names = {check.name for check in OF_UTTERANCES}
    rules = Rules(encoder([text]), 0.1, 30.0)
    return {f.check for f in examine([utterance(text=text)], rules)} & names


def encoder(texts: list[str], case: str = "keep") -> TextEncoder:
    spell = lambda text: normalize(text, case)  # type: ignore[arg-type] # noqa: E731
    return TextEncoder(
        CharTokenizer.train(filter(is_visible, map(spell, texts))),
        spell,
        ENCODE.num_frames,
        ctc_frames,
    )


def of_corpus(
    check: str, *texts: str, dev: tuple[str, ...] = (), rules: Rules | None = None
) -> list:
    facts = [utterance(line=i, text=text) for i, text in enumerate(texts, 1)]
    facts += [utterance("dev.jsonl", line=i, text=text) for i, text in enumerate(dev, 1)]
    rules = rules or Rules(encoder([*texts, *dev]), 0.1, 30.0)
    return [f for f in examine(facts, rules) if f.check == check]


@pytest.mark.parametrize(
    ("kind", "text"), [(k, text) for k, texts in FOUND.items() for text in texts]
)
def test_a_text_with_what_nobody_speaks_is_found_by_its_kind(kind: str, text: str) -> None:
    assert kind in kinds(text), marks_in(text)


@pytest.mark.parametrize("text", SOUND)
def test_control_spelling_is_sound(text: str) -> None:
    assert kinds(text) == set()
    assert marks_in(text) == {}


def test_what_one_kind_holds_is_not_found_by_another() -> None:
    assert marks_in("mail a.b@example.org &amp; https://x.org/?q=1 [laughs] 🙂") == {
        "markup": ["&amp;"], "address": ["a.b@example.org", "https://x.org/?q=1"],
        "annotation": ["[laughs]"], "emoji": ["🙂"],
    }  # fmt: skip
    assert marks_in("Yes, 3.5 % (or so)!") == {
        "annotation": ["(or so)"], "digits": ["3.5"], "symbols": ["%"], "punctuation": [",", "!"],
    }  # fmt: skip


def test_each_check_says_what_to_do() -> None:
    names = [check.name for check in (*OF_UTTERANCES, *OF_CORPORA)]
    assert len(set(names)) == len(names)
    assert set(ADVICE) == {*names, "line"}
    assert all(ADVICE.values())


def test_punctuation_in_few_texts_is_a_warning_for_each() -> None:
    found = of_corpus("some-punctuation", "yes", "no", "yes, no.", "no", "(no")
    assert [f.message for f in found] == ["',', '.' in 'yes, no.'", "'(' in '(no'"]
    assert of_corpus("some-punctuation", "Ja.", "Nein, nein!", "Ja", "So.") == []


@pytest.mark.parametrize("odd", ["YES", "Yes", "YES NO", "Yes no"])
def test_another_case_is_found(odd: str) -> None:
    (found,) = of_corpus("case", "yes", "no", "yes no", "go yes", odd)
    assert odd in found.message


def test_another_case_in_dev_than_in_train_is_found() -> None:
    found = of_corpus("case", "YES", "NO", dev=("yes", "no", "I"))
    assert [f.message for f in found] == [
        "lower case in 'yes', most texts of train.jsonl are upper case",
        "lower case in 'no', most texts of train.jsonl are upper case",
    ]
    lower = Rules(encoder(["yes", "no"], case="lower"), 0.1, 30.0)
    assert of_corpus("case", "YES", "NO", dev=("yes", "no"), rules=lower) == []


def test_control_sentences_and_spelled_letters_are_of_one_case() -> None:
    assert of_corpus("case", "Das Haus", "Die Stadt", "von Mallinckrodt kam", "Die USA", "O") == []
    assert of_corpus("case", "A M Y", "YES", "A", "P I T") == []


def test_two_forms_of_an_apostrophe_are_found() -> None:
    found = of_corpus("signs", "don't", "can't", "won’t", 'a "b"', "„c“")
    assert [f.id for f in found] == ["u3", "u5"]
    assert found[0].message == "’ (U+2019) for ' in 'won’t'"
    assert of_corpus("signs", "won’t")
    assert of_corpus("signs", "„ja“", "don't", "well-known") == []
