"""The version in its own file, so that packaging can read it without importing torch."""

__version__ = "1.0.0"
