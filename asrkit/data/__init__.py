"""From manifests to batches. `manifest` needs no lhotse, the rest does: import the modules."""
