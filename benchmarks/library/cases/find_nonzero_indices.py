"""The tokens of each expert: of 128 experts, of 16, and of long sequences."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl


def _case(tokens: int, experts: int) -> Case:
    def arguments(make: Make) -> dict[str, Any]:
        chosen = make((tokens, experts), nl.float32, lambda rng, shape: rng.random(shape) < 0.06)
        return {"input_tensor": chosen, "chunk_size": min(tokens, 4096)}

    moved = 4 * experts * (2 * tokens + 1)
    return Case("find_nonzero_indices", f"{tokens} x {experts}", arguments, 0, moved, lnc=2, exact=True)


CASES = [_case(4096, 128), _case(1024, 16), _case(16384, 32)]
