"""A training as one page: scores, curves, alignments, and what was recognised wrong."""
