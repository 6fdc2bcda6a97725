"""Manifests, utterances and batches. Only `manifest` works without lhotse: import its modules."""
