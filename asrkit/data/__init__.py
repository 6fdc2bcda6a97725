"""Manifests, recordings and batches. `manifest` and `recording` need neither lhotse nor torch."""
