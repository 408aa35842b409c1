"""Kernels that were defined without a file: the message says so instead of showing a line."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import CALL, Topic, X

TOPIC = Topic(__file__)
refused = TOPIC.refused
SPACE: dict[str, Any] = {"nl": nl, "nisa": nisa}


def _define(name: str, text: str, file: str) -> Any:
    exec(compile(text, file, "exec"), SPACE)
    return SPACE[name]


refused("access.out-of-bounds", X, at="", cure=None)(
    _define("from_exec", "def from_exec(a):\n    t = nl.load(a)\n    nisa.memset(t[0:5], 0)\n", "<string>")
)
refused("operand.kind", X, at="", cure=None)(
    _define("from_a_cell", "def from_a_cell(a):\n    t = nl.load(a)\n    nisa.memset(t, 'x')\n", "<cell 1>")
)
refused("tensor_copy.shapes", X, at="", cure=None)(
    _define(
        "with_a_helper",
        "def helper(t):\n    nisa.tensor_copy(t[:, 0:4], t)\n\ndef with_a_helper(a):\n    helper(nl.load(a))\n",
        "<cell 2>",
    )
)
refused("argument.dtype", np.arange(4.0), at=CALL, cure=None)(
    _define("wide_without_source", "def wide_without_source(a):\n    nl.load(a)\n", "<cell 3>")
)
refused("return.kind", X, at="", cure=None)(
    _define("number_without_source", "def number_without_source(a):\n    return 3\n", "<cell 4>")
)
