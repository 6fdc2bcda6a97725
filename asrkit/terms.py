"""Terms of a model: the licence of its weights, and the languages that it recognises.

Terms travel in the model file: through further training, averages, packing, exports and uploads.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from asrkit.errors import UserError, shown

MOST_CHARACTERS = 200  # length limit of a licence
MOST_LANGUAGES = 100
LANGUAGE = re.compile(r"[a-z]{2,3}")


class Terms(NamedTuple):
    """The licence of a model's weights (CC-BY-4.0), and codes of its languages (en)."""

    licence: str | None = None  # None if unknown
    languages: tuple[str, ...] = ()

    def metadata(self) -> dict[str, Any]:
        """Return values for JSON, without unknown ones."""
        values = {"licence": self.licence, "languages": [*self.languages]}
        return {key: value for key, value in values.items() if value}

    def properties(self) -> dict[str, str]:
        """Return the values as text, codes of languages separated by spaces."""
        values = self.metadata().items()
        return {key: " ".join(v) if isinstance(v, list) else v for key, v in values}

    def or_else(self, others: "Terms") -> "Terms":
        """Return these terms; where they are unknown, the others."""
        return Terms(self.licence or others.licence, self.languages or others.languages)


UNKNOWN = Terms()


def spelled(licence: str) -> str:
    """Return a licence in the spelling for comparisons: "CC BY-SA 4.0" is cc-by-sa-4.0."""
    return re.sub(r"[\s_]+", "-", licence.strip().lower())


def licence_of(card: Mapping[str, Any]) -> Any:
    """Return the licence in the properties of a card on the hub, unchecked; None without one."""
    return card.get("license_name" if card.get("license") == "other" else "license")


def checked_licence(value: object) -> str:
    """Return the name of a licence, checked."""
    text = value.strip() if isinstance(value, str) else ""
    if not 0 < len(text) <= MOST_CHARACTERS or not text.isprintable():
        raise UserError(
            f"a licence must be one printable line of at most {MOST_CHARACTERS} characters, such as"
            f" CC-BY-4.0, got {shown(value)}"
        )
    return text


def checked_languages(values: object) -> tuple[str, ...]:
    """Return codes of languages, each once, checked."""
    if not isinstance(values, list | tuple) or len(values) > MOST_LANGUAGES:
        raise UserError(
            f"languages must be a list of at most {MOST_LANGUAGES} codes, got {shown(values)}"
        )
    for code in values:
        if not isinstance(code, str) or not LANGUAGE.fullmatch(code):
            raise UserError(
                f"a language must be a code of two or three letters, such as en, got {shown(code)}"
            )
    return tuple(dict.fromkeys(values))
