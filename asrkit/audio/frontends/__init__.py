"""Frontends: samples to log mel features, one file a definition, chosen in `registry`."""
