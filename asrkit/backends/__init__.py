"""Backends run a network in one context: one file per kind, see `registry`."""

from asrkit.backends.backend import Backend
from asrkit.backends.registry import BACKENDS, build_backend, build_second
