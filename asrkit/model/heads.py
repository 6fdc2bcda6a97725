"""The kinds of heads. Another one is a class in a file of its own and a line in KINDS."""

from collections.abc import Mapping
from typing import Any

from asrkit.model.head import CTCHead, Head
from asrkit.model.transducer import TransducerHead
from asrkit.registry import Kinds

KINDS: Kinds[Head] = Kinds(
    "head", {"ctc": CTCHead, "transducer": TransducerHead}, ("dim", "vocab_size")
)


def build_head(head: str | Mapping[str, Any], dim: int, vocab_size: int) -> Head:
    """Return the head of a configuration with fresh weights.

    Args:
        head: its kind, or a dict of its "kind" and the options of that kind.
    """
    cls, options = KINDS.chosen(head)
    return cls(dim, vocab_size, **options)
