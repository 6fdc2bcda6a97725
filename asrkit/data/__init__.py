"""Manifests, utterances and batches. `manifest` and `labelled` can be imported without lhotse."""
