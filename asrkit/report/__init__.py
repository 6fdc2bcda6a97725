"""A report page on a training: scores and recognition errors."""
