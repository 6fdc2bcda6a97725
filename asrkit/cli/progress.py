"""The progress bar of commands, which a terminal shows while it lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def bar(items: Iterable[Item], title: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items; show how many there were."""
    from tqdm import tqdm

    yield from tqdm(items, title, total, unit=f" {unit}", disable=None, leave=False)
