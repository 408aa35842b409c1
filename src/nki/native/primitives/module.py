"""The module that every record needs: the dispatch loop, what steers it, the helpers of rows, and the barrier."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from nki.native import operand_layout
from nki.native.primitives.abi import GATHER, SCATTER
from nki.native.primitives.base import barrier_text, gather_text, run_text, scatter_text
from nki.native.primitives.control import CONTROL, control_text
from nki.native.primitives.dots import order_text
from nki.native.primitives.rows import SIZES, row_functions

RUN = "run"
BARRIER = "barrier"
ORDER = "order"

HELPERS = {
    **{word: f"gather_{size}" for size, word in GATHER.items()},
    **{word: f"scatter_{size}" for size, word in SCATTER.items()},
}
"""Functions whose addresses stand in words of the context."""

NAMES = (RUN, BARRIER, ORDER, *CONTROL, *HELPERS.values())
"""Functions that others use."""


def module_text() -> str:
    """MLIR of all functions."""
    parts = [run_text(RUN), barrier_text(BARRIER), order_text(ORDER), control_text(), row_functions(*SIZES)]
    for size in SIZES:
        parts += [gather_text(f"gather_{size}", size), scatter_text(f"scatter_{size}", size)]
    return "".join(parts)


@cache  # this process runs the source that it has read
def digest() -> str:
    """Digest of what determines the texts of this folder: its source, and that of the words of a record."""
    files = [*sorted(Path(__file__).parent.glob("*.py")), Path(operand_layout.__file__)]
    content = b"".join(path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()[:32]


def named(stem: str) -> str:
    """The name of a function whose text comes from this folder, with a digest of everything that determines it."""
    return f"{stem}_{digest()}"


MODULE = named("primitives")
"""Name of the module, with a digest of everything that determines its text."""
