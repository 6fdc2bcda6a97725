"""Forced alignment against that of torchaudio, and delays on cases worked out by hand."""

import math
from functools import partial

import pytest
import torch

from asrkit.backends.pytorch import log_probs as ctc
from asrkit.evaluation.delays import Delay, delays, summarize
from asrkit.model import Context
from asrkit.model.head import ctc_frames
from asrkit.search.base import Hypothesis
from asrkit.search.forced_alignment import AlignmentError, ForcedAlignment
from tests.search.test_transducer_searches import HEADS, frames, head


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 10.0])
def test_alignment_equals_torchaudios(sharpness: float) -> None:
    """Torchaudio's forced alignment is the reference; 0: all paths are equally likely."""
    from torchaudio.functional import forced_align, merge_tokens

    draw = torch.Generator().manual_seed(1)
    for trial in range(60):
        vocabulary = 2 + trial % 7  # few tokens: many repetitions
        tokens = torch.randint(1, vocabulary, (1 + trial // 2,), generator=draw).tolist()
        spare = int(torch.randint(0, 40, (), generator=draw))
        shape = ctc_frames(tokens) + spare, vocabulary
        log_probs = (sharpness * torch.randn(shape, generator=draw)).log_softmax(1)
        path, scores = forced_align(log_probs[None], torch.tensor([tokens], dtype=torch.int32))
        spans = merge_tokens(path[0], scores[0].exp())
        found = ForcedAlignment(tokens).align(log_probs.numpy())
        assert found is not None
        assert found.tokens == tuple(span.token for span in spans)
        assert found.starts == tuple(span.start for span in spans)
        assert found.ends == tuple(span.end for span in spans)
        assert all(0 < score <= 1 for score in found.confidences)


def test_what_is_impossible_is_passed_where_it_must_be() -> None:
    """A log-probability of minus infinity: tokens keep frames of their own."""
    log_probs = torch.full((6, 3), -torch.inf)
    log_probs[:, 0] = 0.0
    found = ForcedAlignment([1, 1, 2]).align(log_probs.numpy())
    assert found is not None
    assert all(start < end for start, end in zip(found.starts, found.ends, strict=True))
    assert found.confidences == (0.0,) * 3


def test_text_longer_than_the_audio_has_no_alignment() -> None:
    log_probs = torch.randn(3, 4).log_softmax(1)
    assert ForcedAlignment([1, 1]).align(log_probs.numpy()) is not None
    assert ForcedAlignment([1, 1, 2]).align(log_probs.numpy()) is None
    for factor, said in ((1.0, "2 frames"), (math.nan, "the network returned NaN")):
        search = ForcedAlignment([1, 1])
        with pytest.raises(AlignmentError, match=said):
            search.best(search.step(search.start(), log_probs[:2].numpy() * factor))
    assert ForcedAlignment([]).align(log_probs.numpy()) == Hypothesis((), (), (), ())


def test_a_transducer_is_aligned_by_its_ctc_layer() -> None:
    own, encoded, tokens = head(**HEADS[1]), frames(40), [4, 1, 4, 2, 9]
    assert own.ctc is not None
    with torch.inference_mode():
        expected = ForcedAlignment(tokens).align(own.ctc.emissions(encoded[None])[0].numpy())
    encoded = encoded.numpy()
    search = ForcedAlignment(tokens, partial(ctc, own.ctc))
    state = search.step(search.step(search.start(), encoded[:13]), encoded[13:])
    aligned = search.best(state)
    assert expected is not None
    assert aligned[:3] == expected[:3]
    assert aligned.confidences == pytest.approx(expected.confidences)


def test_delays_of_known_tokens_are_as_worked_out() -> None:
    """Chunks of 4; "a" ends at 2 and starts at 1, "c" ends at 9 and comes at 10, in a last chunk
    that ends at 11; "b" was heard as something else."""
    reference = Hypothesis((1, 2, 3), (0, 4, 8), (2, 5, 9), (1.0,) * 3)
    hypothesis = Hypothesis((1, 7, 3), (1, 5, 10), (2, 6, 11), (1.0,) * 3)
    assert delays(reference, hypothesis, Context(4), 11) == ([4 - 2, 11 - 9], [2])
    assert delays(reference, hypothesis, Context(1), 11) == ([2 - 2, 11 - 9], [2])
    assert delays(reference, hypothesis, Context(1 << 30), 11) == ([11 - 2, 11 - 9], [2])
    unheard = Hypothesis((1,), (1,), (2,), (1.0,))
    assert delays(reference, unheard, Context(4), 11) == ([2], [])
    assert summarize([1, 2, 3, 10], [4, 6], 40) == Delay(160.0, 100.0, pytest.approx(316.0), 200.0)
    assert summarize([1], [], 40) == Delay(40.0, 40.0, 40.0, None)
    assert summarize([], [], 40) is None
