"""What runs a network at one chunk size and left context."""

from asrkit.backends.registry import BACKENDS, Backend, build_backend, eager

__all__ = ["BACKENDS", "Backend", "build_backend", "eager"]
