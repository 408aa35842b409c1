"""Cross entropy: the vocabularies of Llama 2 and Llama 3, with the gradient in a tensor of its own and in place."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl


def _case(kernel: str, positions: int, vocabulary: int, dtype: Any = nl.bfloat16, lnc: int = 1, **options: Any) -> Case:
    def arguments(make: Make) -> dict[str, Any]:
        return given(make, positions)

    def given(make: Make, rows: int) -> dict[str, Any]:
        found = {"logits_hbm": make((rows, vocabulary), dtype)}
        found["targets_hbm"] = make((rows,), nl.int32, lambda rng, shape: rng.integers(0, vocabulary, shape))
        if kernel == "cross_entropy_backward":
            found["lse_state_hbm"] = make((rows,), dtype, lambda rng, shape: 12.0 + rng.random(shape))
        return found | {"dtype": dtype} | options

    def small(make: Make) -> dict[str, Any]:
        return given(make, 130)

    backward = kernel == "cross_entropy_backward"
    name = f"{positions} x {vocabulary}, {dtype}" + (", in place" if backward and options.get("inplace", True) else "")
    moved = positions * vocabulary * dtype.itemsize * (2 if backward else 1)
    return Case(kernel, name, arguments, 0, moved, lnc, small=small)


CASES = [
    _case("cross_entropy_forward", 2048, 32000, chunk_size=32000),
    _case("cross_entropy_forward", 1024, 128256),
    _case("cross_entropy_forward", 1024, 32000, nl.float32, chunk_size=16000),
    _case("cross_entropy_forward", 1024, 128256, lnc=2),
    _case("cross_entropy_backward", 2048, 32000, chunk_size=16000),
    _case("cross_entropy_backward", 1024, 128256, inplace=False, chunk_size=16384),
    _case("cross_entropy_backward", 1024, 32000, nl.float32, chunk_size=8000),
    _case("cross_entropy_backward", 1024, 128256, lnc=2, chunk_size=16384),
]
