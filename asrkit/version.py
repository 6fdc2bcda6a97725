"""The version in its own file, so that packaging can read it without an import."""

__version__ = "1.0.0rc1"
