"""Normalisation and softmax of rows, and their gradients: of Llama, of BERT, and of long rows."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl


def _case(kernel: str, names: str, rows: int, columns: int, dtype: Any = nl.bfloat16, lnc: int = 1) -> Case:
    """A call of a kernel whose arguments `names` are matrices, or, if they are Greek, one number for each column."""
    given = names.split()

    def arguments(make: Make) -> dict[str, Any]:
        return {name: make((columns,) if name in ("gamma", "beta") else (rows, columns), dtype) for name in given}

    matrices = sum(name not in ("gamma", "beta") for name in given) + 1
    name = f"{rows} x {columns}, {dtype}"
    moved = (matrices * rows + 2 * (len(given) - matrices + 1)) * columns * dtype.itemsize
    return Case(kernel, name, arguments, 0, moved, lnc, official=False)


CASES = [
    _case("rms_norm", "x gamma", 2048, 4096),
    _case("rms_norm", "x gamma", 512, 8192),
    _case("rms_norm", "x gamma", 2048, 4096, nl.float32),
    _case("rms_norm", "x gamma", 2048, 4096, lnc=2),
    _case("rms_norm_backward", "dy x gamma", 2048, 4096),
    _case("rms_norm_backward", "dy x gamma", 4096, 768, nl.float32),
    _case("layer_norm", "x gamma beta", 4096, 768),
    _case("layer_norm", "x gamma beta", 2048, 4096, nl.float32),
    _case("layer_norm", "x gamma beta", 4096, 768, lnc=2),
    _case("layer_norm_backward", "dy x gamma beta", 4096, 768),
    _case("layer_norm_backward", "dy x gamma beta", 2048, 4096, nl.float32),
    _case("softmax", "x", 2048, 4096),
    _case("softmax", "x", 2048, 4096, nl.float32),
    _case("softmax", "x", 256, 32000, nl.float32),
    _case("softmax_backward", "dy out", 2048, 4096),
    _case("softmax_backward", "dy out", 2048, 4096, nl.float32),
]
