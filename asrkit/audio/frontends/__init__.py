"""Frontends compute log mel features from samples: one file per definition."""
