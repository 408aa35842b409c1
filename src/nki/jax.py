"""``nki.jax``: `nki.interop.jax` under a shorter name, ``nki.jax.compile(function)``."""

from __future__ import annotations

from nki.interop.jax import *  # noqa: F403 - all that is public there, and nothing else
from nki.interop.jax import __all__ as __all__
