"""``nki.experimental``: names that became part of nki.language, under the path that they had before."""

from nki.language.loops import while_loop

__all__ = ["while_loop"]
