"""Augmentation of features in training."""

from typing import NamedTuple

from torch import Tensor


class SpecAugment(NamedTuple):
    """Masks over time and frequency (Park et al. 2019), drawn by lhotse from torch and random.

    Attributes:
        frequency_masks: how many.
        frequency_bins: the widest.
        time_masks: how many at most.
        time_frames: the longest.
        max_time_share: of an utterance's frames, all time masks together.
    """

    frequency_masks: int
    frequency_bins: int
    time_masks: int
    time_frames: int
    max_time_share: float

    def __call__(self, feats: Tensor, lengths: Tensor, probability: float) -> Tensor:
        """Mask the valid frames of each row of (B, T, F) with this probability."""
        from lhotse.dataset.signal_transforms import SpecAugment as Masks

        masks = Masks(
            time_warp_factor=None, num_feature_masks=self.frequency_masks,
            features_mask_size=self.frequency_bins, num_frame_masks=self.time_masks,
            frames_mask_size=self.time_frames, max_frames_mask_fraction=self.max_time_share,
            p=probability,
        )  # fmt: skip
        # lhotse cannot draw from masks of no length: rows too short for one frame stay whole.
        shortest = self.time_masks / self.max_time_share
        feats = feats.clone()
        for row, length in zip(feats, lengths.tolist(), strict=True):
            if length >= shortest:
                row[:length] = masks(row[None, :length])[0]
        return feats
