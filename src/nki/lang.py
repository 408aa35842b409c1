"""``nki.lang``: the short spelling of `nki.language`, every name of which is the same object here.

``import nki.lang as nl``, ``from nki.lang import ndarray`` and ``nki.lang.ndarray`` all work; names that an earlier
version had are refused as in `nki.language`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nki import language

if TYPE_CHECKING:  # which does not see what is put in below
    from nki.language import *  # noqa: F403 - all of them
    from nki.language import bool as bool
    from nki.language import range as range

__all__ = list(language.__all__)

# Real attributes, because the checks of a kernel's source read the dictionaries of modules.
globals().update({name: vars(language)[name] for name in __all__})


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What else `nki.language` has; RemovedError or AttributeError if it has no such name."""
        return getattr(language, name)
