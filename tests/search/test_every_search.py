"""Every search is a stream: any split, batch or saved state gives the same, and a past matters."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from asrkit.backends.pytorch import EagerParts
from asrkit.lm import Hotwords
from asrkit.runtime.serialization import plain, read
from asrkit.search import (
    GreedySearch,
    PrefixBeamSearch,
    Ranked,
    Search,
    TransducerBeamSearch,
    TransducerGreedySearch,
)
from asrkit.search.base import CtcSearch, penalize_blank
from asrkit.search.beam import STABLE_FRAMES
from tests.search.test_prefix_beam import pieces, random_log_probs
from tests.search.test_transducer_searches import HEADS, frames, head

HOTWORDS = Hotwords({"ab a": 4.0, "cd": 2.0}, ["", *"abcdefghij "])
SEARCHES: dict[str, Callable[[], Search]] = {
    "greedy": GreedySearch,
    "greedy, label": lambda: GreedySearch(0.5).bound(None, 4),
    "prefix beam": lambda: PrefixBeamSearch(4, min_token_prob=1e-3, skip_blank_prob=0.9),
    "prefix beam of one, label": lambda: PrefixBeamSearch(1).bound(None, 4),
    "prefix beam, hotwords": lambda: PrefixBeamSearch(8).plus(HOTWORDS),
    **{f"transducer greedy {i}": lambda options=options: TransducerGreedySearch(
        EagerParts(head(**options)))
       for i, options in enumerate(HEADS)},
    **{f"transducer beam {i}": lambda options=options, beam=2 + i % 3: TransducerBeamSearch(
        EagerParts(head(**options)), beam=beam) for i, options in enumerate(HEADS)},
    "transducer beam, hotwords": lambda: TransducerBeamSearch(
        EagerParts(head()), beam=3).plus(HOTWORDS),
}  # fmt: skip
PLAIN = ["greedy", "prefix beam", "transducer greedy 0", "transducer beam 1"]


@pytest.fixture(params=SEARCHES)
def search(request: pytest.FixtureRequest) -> Search:
    return SEARCHES[request.param]()


def emissions(search: Search, count: int, seed: int, scale: float = 3.0) -> np.ndarray:
    if search.head is not None:
        return frames(count, seed).numpy()
    log_probs = random_log_probs(seed, count, 12, scale)
    return log_probs.astype(np.float32) if seed % 3 else log_probs


def after(search: Search, *parts: np.ndarray) -> Any:
    state = search.start()
    for part in parts:
        state = search.step(state, part)
    return state


def ranked(search: Search, state: Any) -> list[Ranked]:
    return search.nbest(state) or [Ranked(search.best(state), 0.0)]


def assert_same(search: Search, found: Any, expected: Any) -> None:
    """To the last bit for CTC; a transducer's batches round in other ways."""
    rounding = 0.0 if search.head is None else 1e-9
    for one, other in zip(ranked(search, found), ranked(search, expected), strict=True):
        assert one.hypothesis[:3] == other.hypothesis[:3]
        numbers = (*one.hypothesis.confidences, one.score)
        others = (*other.hypothesis.confidences, other.score)
        assert numbers == pytest.approx(others, rel=0.0, abs=rounding)
    assert search.partial(found).tokens == search.partial(expected).tokens
    assert found.frame == expected.frame


@pytest.mark.parametrize("seed", range(9))
def test_any_split_equals_the_whole(
    search: Search, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is stable changes, and a hypothesis begins with it."""
    count = 2 * STABLE_FRAMES if seed > 2 and search.head is None else 40
    given = emissions(search, count, seed)
    whole = after(search, given)
    if seed % 2:  # search often for what is stable
        monkeypatch.setattr("asrkit.search.beam.STABLE_FRAMES", 1)
    state, quiet, ends, stable = search.start(), list[bool](), list[float](), ()
    for part in pieces(given, seed) if seed else np.split(given, len(given)):
        state = search.step(state, part)
        quiet, ends = [*quiet, *state.quiet], [*ends, *state.ends]
        assert search.stable(state)[: len(stable)] == stable
        stable = search.stable(state)
        for each in ranked(search, state):
            assert each.hypothesis.tokens[: len(stable)] == stable
    assert_same(search, state, whole)
    assert quiet == [*whole.quiet]
    assert {*quiet} == {True, False}
    assert ends == pytest.approx([*whole.ends])
    assert len(ends) == (0 if search.end_of_turn is None and search.head is None else count)
    assert search.best(whole) == ranked(search, whole)[0].hypothesis


def arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from arrays(part)


def test_streams_of_a_batch_equal_streams_alone(search: Search) -> None:
    """At different places, with different numbers of frames, none among them."""
    parts = [emissions(search, size, 3 * seed) for seed, size in enumerate([20, 0, 9, 1, 15])]
    states = [after(search, emissions(search, n, 3 * n)) for n in range(5)]
    together = search.step_all(states, parts)
    for state, part, found in zip(states, parts, together, strict=True):
        alone = search.step(state, part)
        assert_same(search, found, alone)
        assert found.quiet == alone.quiet
        more = emissions(search, 9, 7)
        assert_same(search, search.step(found, more), search.step(alone, more))
        # A view would keep the memory of all streams; a stateless predictor's holds a label more.
        assert all(x.base is None or x.base.nbytes <= x.nbytes + 8 for x in arrays(found))
    mixed = search.step_all(states[::-1], parts)
    assert [*map(search.best, mixed[::-1])] != [*map(search.best, together)]  # control


def test_a_past_stays_as_it_was(search: Search) -> None:
    """Two futures of one past change neither the past nor each other."""
    first, second = emissions(search, 20, 0), emissions(search, 20, 3)
    state = after(search, first)
    before, copies = ranked(search, state), [each.copy() for each in arrays(state)]
    expected = search.step(state, second)
    search.step(state, first)
    assert ranked(search, state) == before
    assert all(map(np.array_equal, arrays(state), copies))
    assert_same(search, search.step(state, second), expected)


def test_saved_state_continues_bit_for_bit(search: Search) -> None:
    """Also where a text of the beam grows into another one of it."""
    given = emissions(search, 60, 0, scale=1.0)
    for cut in (0, 1, 3, 31):
        state, saved = after(search, given[:cut]), dict[str, np.ndarray]()
        written = json.loads(json.dumps(plain(search.to_value(state), saved)))
        restored = search.from_value(read(search.Value, written, saved))
        assert json.loads(json.dumps(plain(search.to_value(restored), {}))) == written
        expected, found = (search.step(each, given[cut:]) for each in (state, restored))
        assert ranked(search, found) == ranked(search, expected)
        assert search.stable(found) == search.stable(expected)
        assert all(map(np.array_equal, arrays(found), arrays(expected)))


def tampered(state: Any, fresh: Any) -> dict[str, Any]:
    """States with a part of the initial one, or with rows of a beam that are exchanged."""
    fields = {*state._fields} - {"quiet", "ends", "stable", "past"}
    fields -= {"beam"} if "past" in state._fields else set()  # rows of the past fit the beam
    found = {field: state._replace(**{field: getattr(fresh, field)}) for field in fields}
    if "past" in state._fields:
        beam = (state.beam[0], *(x._replace(score=x.score + 1.0) for x in state.beam[1:]))
        found["score"] = state._replace(beam=beam)
        output, past = state.past
        found["rows"] = state._replace(
            past=state.past._replace(output=output[::-1], state=tuple(x[::-1] for x in past))
        )
        for part in state.past._fields:
            rows = [np.broadcast_to(each, own.shape) for each, own in
                    zip(arrays(getattr(fresh.past, part)), arrays(getattr(state.past, part)),
                        strict=True)]  # fmt: skip
            value = rows[0] if part == "output" else tuple(rows)
            found[part] = state._replace(past=state.past._replace(**{part: value}))
    elif "beam" in state._fields:
        found["narrow"] = state._replace(beam=state.beam[:1])
    return found


@pytest.mark.parametrize("kind", PLAIN)
def test_control_a_changed_past_is_noticed(kind: str) -> None:
    """Each part of it, in one of a dozen streams."""
    search, noticed, parts = SEARCHES[kind](), set[str](), dict.fromkeys(["any"])
    for seed in range(12):
        if noticed == parts.keys():
            break
        given = emissions(search, 40, 3 * seed)
        whole, state = after(search, given), after(search, given[:20])
        parts = tampered(state, search.start())
        for part, changed in parts.items():
            try:
                assert_same(search, search.step(changed, given[20:]), whole)
            except (AssertionError, IndexError):
                noticed.add(part)
    assert noticed == parts.keys()


@pytest.mark.parametrize("label", [None, 4])
@pytest.mark.parametrize("kind", ["greedy", "prefix beam"])
def test_quiet_frames_are_found_without_a_search(kind: str, label: int | None) -> None:
    """They are those of the state, which costs a beam search to compute."""
    search = SEARCHES[kind]().bound(None, label)
    assert isinstance(search, CtcSearch)
    log_probs = emissions(search, 50, 0)
    expected = tuple((search.readable(log_probs).argmax(1) == 0).tolist())
    assert search.quiet(log_probs) == Search.quiet(search, log_probs) == expected
    assert {*expected} == {True, False}


def test_penalized_frames_are_distributions() -> None:
    log_probs = random_log_probs(0, 40, 6)
    lowered = penalize_blank(log_probs, 0, math.log(4.0))
    assert abs(np.exp(lowered).sum(axis=1) - 1.0).max() < 1e-12
    # Every token's odds against the blank are four times what they were.
    odds = (lowered[:, 1:] - lowered[:, :1]) - (log_probs[:, 1:] - log_probs[:, :1])
    assert abs(odds - math.log(4.0)).max() < 1e-12
    assert penalize_blank(log_probs, 0, 0.0) is log_probs


@pytest.mark.parametrize(
    "kind",
    [GreedySearch, PrefixBeamSearch,
     lambda **options: TransducerGreedySearch(EagerParts(head(**HEADS[0])), **options),
     lambda **options: TransducerBeamSearch(EagerParts(head(**HEADS[0])), **options)],
)  # fmt: skip
def test_a_penalty_of_the_blank_writes_more(kind: Callable[..., Search]) -> None:
    plain_search, lowered = kind(), kind(blank_penalty=1.0)
    given = emissions(plain_search, 40, 0)
    if plain_search.head is None:
        given = penalize_blank(given, 0, -6.0)  # mostly blanks
        equal = after(plain_search, penalize_blank(given, 0, 1.0))
        assert_same(plain_search, after(lowered, given), equal)
    counts = [
        len(search.best(after(search, given)).tokens)
        for search in (kind(blank_penalty=-2.0), plain_search, lowered)
    ]
    assert counts == sorted({*counts})
    with pytest.raises(ValueError, match="blank_penalty must be a finite number, got nan"):
        kind(blank_penalty=math.nan)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam must be 1 or more, got 0"),
        ({"min_token_prob": 1.5}, "min_token_prob must be between 0 and 1, got 1.5"),
        ({"skip_blank_prob": math.nan}, "skip_blank_prob must be between 0 and 1, got nan"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrefixBeamSearch(**options)
    with pytest.raises(ValueError, match=message):
        TransducerBeamSearch(**options)
