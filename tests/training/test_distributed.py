"""What the first of several processes makes for all of them."""

import pytest
import torch.distributed as dist

from asrkit.data.manifest import ManifestError
from asrkit.training.distributed import Ranks


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[Ranks]:
    """Two ranks, the first of which is asked first."""
    sent: list[object] = []

    def broadcast(made: list[object]) -> None:
        if sent:
            made[:] = sent
        else:
            sent.extend(made)

    monkeypatch.setattr(dist, "broadcast_object_list", broadcast)
    ranks = [Ranks(), Ranks()]
    for number, each in enumerate(ranks):
        each.rank, each.size = number, 2
    return ranks


def test_only_the_first_rank_makes_it(two: list[Ranks]) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return 7

    assert [ranks.from_first(make) for ranks in two] == [7, 7]
    assert len(made) == 1


def test_a_mistake_that_the_first_finds_ends_all(two: list[Ranks]) -> None:
    """The others do not wait for what will not come."""

    def make() -> int:
        raise ManifestError("no manifest x")

    for ranks in two:
        with pytest.raises(ManifestError, match="no manifest x"):
            ranks.from_first(make)
