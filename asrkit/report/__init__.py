"""A report page on a training: scores, curves, alignments and recognition errors."""
