"""``nki.lang``: the short spelling of `nki.language`, every name of which is the same object here.

``import nki.lang as nl``, ``from nki.lang import ndarray`` and ``nki.lang.ndarray`` all work; names that an earlier
version had are refused as in `nki.language`.
"""

from __future__ import annotations

from typing import Any

from nki import language

__all__ = list(language.__all__)

# Real attributes, because the checks of a kernel's source read the dictionaries of modules.
globals().update({name: vars(language)[name] for name in __all__})


def __getattr__(name: str) -> Any:
    """What else `nki.language` has; RemovedError or AttributeError if it has no such name."""
    return getattr(language, name)
