"""Backends run a network in one context: one file per kind, see `registry`."""

from asrkit.backends.backend import Backend, Spec
from asrkit.backends.registry import BACKENDS, build_backend, build_second

__all__ = ["BACKENDS", "Backend", "Spec", "build_backend", "build_second"]
