"""The kernels of all published points with the shapes that were measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.timing_cases import instructions, mamba, products, public_shapes, transfers
from benchmarks.timing_cases.runs import Case

import nki.language as nl

F32, BF16 = np.float32, nl.bfloat16
STREAM, CHAIN = 16, 8
"""Instructions of a stream and links of a chain in the micro-benchmarks."""
LONG, SHORT = 64, 4
"""Transfers of a stream of small and of large ones: enough that its beginning hardly counts."""


def _mamba(kernel: Any, channels: int, columns: int, times: float = 1.0) -> Case:
    state = 16
    arrays = (channels, columns), (channels, columns), (channels, state), (state, columns), (state, columns)
    return Case(kernel, "trn1", tuple((shape, F32) for shape in arrays), times=times)


def _product(kernel: Any, rows: int) -> Case:
    """4096 x 8192 x 8192, or some rows of the result."""
    return Case(kernel, "trn2", (((8192, rows), F32), ((8192, 8192), F32)), times=4096 / rows)


def _row(kernel: Any, columns: int, rows: int = 80) -> Case:
    return Case(kernel, "trn2", (((rows, columns), BF16),))


def _square(kernel: Any, columns: int, *more: Any) -> Case:
    return Case(kernel, "trn1", (((128, columns), F32),), more)


def cases(small: bool = False) -> dict[str, Case]:
    """All cases by name; `small` ones take parts of the large kernels, which are uniform.

    Not of the first Mamba kernel: how far its loads run ahead depends on how many sums stay in SBUF.
    """
    part = 4.0 if small else 1.0
    channels = 1024 if small else 4096
    found = {
        "load_exp_store_4": Case(instructions.load_exp_store, "trn2", (((4, 4096), BF16),)),
        "load_exp_store_128": Case(instructions.load_exp_store, "trn2", (((128, 128), BF16),)),
        "plain_copy": Case(lambda a: instructions.stored(instructions.loaded(a)), "trn2", (((128, 512), F32),)),
        "square_sum": _row(instructions.square_sum, 16384),
        "inverse_root": Case(instructions.inverse_root, "trn2", (((80, 1), F32),)),
        "scaled_rows": Case(instructions.scaled_rows, "trn2", (((80, 2048), BF16), ((1, 2048), BF16))),
        "largest": _row(instructions.largest, 16384),
        "quantized": _row(instructions.quantized, 16384),
        "copies_and_sums": Case(instructions.copies_and_sums, "trn2", (((128, 128), F32), ((128, 512), F32))),
        "scaled_copies": Case(instructions.scaled_copies, "trn1", (((128, 1), F32),)),
        "matrix_vector": Case(instructions.product, "trn1", (((128, 1), BF16), ((128, 128), BF16)), (1,)),
        "halves": _square(instructions.halves, 512),
        "whole": _square(_whole, 512),
        "separate": _square(instructions.separate, 512),
        "fused": _square(instructions.fused, 512),
        "inf2_copy": Case(transfers.reads, "trn1", (((1, 128, 1024), F32),)),
        "inf2_chase": Case(transfers.chase, "trn1", (((1, 1024), np.uint32),), (CHAIN,)),
        "inf2_round_trip": _square(transfers.round_trips, 16, CHAIN),
        "inf2_tensor_fp32": Case(instructions.product, "trn1", (((128, 128), F32), ((128, 512), F32)), (STREAM,)),
        "inf2_tensor_bf16": Case(instructions.product, "trn1", (((128, 128), BF16), ((128, 512), BF16)), (STREAM,)),
        "mamba_v1_small": _mamba(mamba.version1, 256, 512),
        "mamba_v1_4k": _mamba(mamba.version1, 4096, 512),
        "mamba_v2_4k": _mamba(mamba.version2, channels, 512, part),
        "mamba_v3_512": _mamba(mamba.version3, channels, 512, part),
        "matmul_tiled": _product(products.tiled, 128 if small else 4096),
        "matmul_hoisted": _product(products.hoisted, 512 if small else 4096),
    }
    for columns in (1024, 2048, 4096):  # a quarter of the channels, which are independent of each other
        for version, kernel in ((2, mamba.version2), (3, mamba.version3)):
            found[f"mamba_v{version}_{columns}"] = _mamba(kernel, 1024, columns, 4.0)
    for nbytes in (128, 2048, 4096, 32768):
        times = LONG if nbytes <= 4096 else SHORT
        found[f"inf2_read_{nbytes}"] = Case(transfers.reads, "trn1", (((times, 128, nbytes // 4), F32),))
        found[f"inf2_write_{nbytes}"] = _square(transfers.writes, nbytes // 4, times)
    for columns in (512, 2048):
        found[f"inf2_scalar_{columns}"] = _square(instructions.exponentials, columns, STREAM)
        found[f"inf2_vector_one_{columns}"] = _square(instructions.additions, columns, STREAM)
        found[f"inf2_vector_two_{columns}"] = _square(instructions.sums, columns, STREAM)
    return {**found, **public_shapes.products(), **public_shapes.streams()}


def holdout_cases() -> dict[str, Case]:
    """Cases of points that are never fitted."""
    loads = {
        f"software_loads_{n}": Case(
            transfers.software_loads, "trn2", (((LONG if n <= 2048 else SHORT, 128, n // 4), F32),)
        )
        for n in (256, 1024, 2048, 4096, 32768)
    }
    return {
        **loads,
        "matmul_blocked_all": _product(products.blocked_all, 2048),
        "mamba_v2_3072": _mamba(mamba.version2, 1024, 3072, 4.0),
        "mamba_v3_3072": _mamba(mamba.version3, 1024, 3072, 4.0),
        "mamba_v3_8192": _mamba(mamba.version3, 512, 8192, 8.0),
    }


def _whole(a: Any) -> Any:
    """One reduction of all partitions."""
    return instructions.largest(a)
