"""Kernels for NKI that are used like functions: attention, projections, norms, mixtures of experts and more.

The published library of the same name comes before this one. Where its package ``nkilib_src`` is installed, ``nkilib``
is that one, as it is for the copy that comes with the vendor's compiler; ``NKILIB_FORCE_BUNDLED_LIBRARY=1`` keeps this
one (nki/library/quickstart-nkl.rst). `docs/library/README.md` lists the kernels.
"""

from __future__ import annotations

from nkilib import _published

_published.take_over(__name__)
