"""The k largest elements of each row, and where they are.

Vector finds the eight largest elements of a partition in one pass, and takes them out in a second one, which also tells
their places. A long row, of which there are few, is cut in n segments on partitions of their own. In each of n stages
every segment takes out its L largest elements and gives them to the next segment, in a ring, where n * L is at least k.
What was taken out in the last stage holds the k largest of the row:

    Call these the large ones. A segment with more than L of them gives L away, so it never gets to have more than
    before, and one with at most L gives all away and has at most L in the next stage. If some segment still had more
    than L in stage n, it gave L in each stage before, its successor had L or more from stage 2 on and gave L in each,
    and so on: in stage n all others would have L or more, altogether more than n * L. But there are only k.

Layouts: (..., V), rows are all but the last dimension. Dtypes: bfloat16, float16 or float32; indices uint32. Equal
elements are taken in any order, each once. -inf is less than every number; NaN is not found. Limits: the segments of a
row, with what they get, have at most 16,384 elements each.

Plan: Vector bounds the kernel, with two passes over a segment for every eight elements; the Tensor engine turns the
ring, and GpSimd looks up the indices. `topk_plan` chooses the number of segments of least cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.topk.topk_plan import TopkPlan, planned
from nkilib.core.topk.topk_ring import PIECE, TAKEN, Ring, clamped, looked_up, put, taken
from nkilib.core.utils.logging import get_logger
from nkilib.errors import KernelLimit
from nkilib.streaming import ceil_div, load, result, sbuf, size, spans

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)
_LOGGER = get_logger("topk")


class SupportedTopkMethods(Enum):
    """How the elements are found; all find the same."""

    SCANNING = 0
    """Rows are not cut."""
    CASCADED = 1
    """Is not built, here or in the published library."""
    ROTATIONAL = 2
    """Rows are cut where that takes less time."""


@dataclass(frozen=True)
class TopkConfig(nl.NKIObject):
    """What is asked for: see `create_topk_config`."""

    inp_shape: tuple[int, ...]
    inp_dtype: Any
    k: int
    sorted: bool
    num_programs: int

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of both results."""
        return (*self.inp_shape[:-1], self.k)

    @property
    def BxS(self) -> int:
        """Rows: the product of all dimensions but the last."""
        return prod(self.inp_shape[:-1])

    @property
    def vocab_size(self) -> int:
        """Elements of a row."""
        return self.inp_shape[-1]


@dataclass(frozen=True)
class RotationalTopkConfig(nl.NKIObject):
    """What is asked for of a matrix: see `create_rotational_topk_config`."""

    inp_shape: tuple[int, ...]
    topk_config: TopkConfig
    plan: TopkPlan

    def log_strategy(self) -> None:
        """Print how rows are cut, where messages of level INFO of the logger "topk" are asked for."""
        asked, plan = self.topk_config, self.plan
        cut = "whole" if plan.segments == 1 else f"in {plan.segments} segments of {plan.length}, {plan.share} from each"
        _LOGGER.info(f"{asked.k} of {asked.vocab_size}, {asked.BxS} rows on {asked.num_programs} cores: {cut}")


def create_topk_config(
    inp_shape: tuple[int, ...], inp_dtype: Any, k: int, sorted: bool = True, num_programs: int = 2
) -> TopkConfig:
    """What is asked for.

    Args:
        inp_shape: (..., V).
        inp_dtype: of the elements.
        k: elements of each row.
        sorted: whether the largest comes first; otherwise any order will do.
        num_programs: cores of the launch.

    Raises:
        KernelLimit: fewer dimensions than two, k that is not 1 to V.
    """
    shape = tuple(inp_shape)
    limits.need(len(shape) >= 2, "inp_shape", list(shape), "inp has two dimensions or more", "reshape inp to (1, V)")
    limits.between("k", k, 1, shape[-1], "k elements of a row of V are taken")
    return TopkConfig(shape, inp_dtype, k, sorted, num_programs if prod(shape[:-1]) > 1 else 1)


def create_rotational_topk_config(
    inp_shape: tuple[int, ...], topk_config: TopkConfig, shared_const_cache: dict[str, str] | None = None
) -> RotationalTopkConfig:
    """The same for a matrix, with a plan.

    Args:
        inp_shape: (rows, V).
        topk_config: what is asked for.
        shared_const_cache: names of files for constants in the published library. This one has none.

    Raises:
        KernelLimit: another number of dimensions, of rows or of columns, a cache, sizes for which there is no plan.
    """
    limits.not_built({"shared_const_cache": shared_const_cache or None}, "rotational_topk")
    of_config = topk_config.inp_shape
    limits.need(
        tuple(inp_shape) == (prod(of_config[:-1]), of_config[-1]),
        "inp_shape",
        list(inp_shape),
        rule=f"inp_shape is (rows, V) of {list(of_config)}",
        fix=f"reshape inp to {[prod(of_config[:-1]), of_config[-1]]}",
    )
    plan = _plan(tuple(inp_shape), topk_config.k, topk_config.num_programs, SupportedTopkMethods.ROTATIONAL)
    return RotationalTopkConfig(tuple(inp_shape), topk_config, plan)


def prepare_rotational_constants(config: RotationalTopkConfig) -> RotationalTopkConfig:
    """The config as it is: a compiled kernel contains its constants, and callers that prepare them need no change."""
    return config


def cleanup_rotational_constants() -> None:
    """Do nothing: `prepare_rotational_constants` leaves nothing behind."""


@nki.jit
def rotational_topk(inp: nl.NkiTensor, config: RotationalTopkConfig) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """The largest elements of the rows of a matrix; the cores of the launch divide the rows.

    Args:
        inp: (rows, V) in HBM.
        config: of `create_rotational_topk_config`, for this shape.

    Returns:
        Values in the dtype of `inp`, and indices in uint32, (rows, k) each.

    Raises:
        KernelLimit: another shape than that of the config, dtypes.
    """
    limits.shape("inp", inp, config.inp_shape)
    return _search(inp, config.topk_config.k, config.topk_config.sorted, config.plan)


@nki.jit
def topk(
    inp: nl.NkiTensor,
    k: int,
    sorted_flag: bool = True,
    method: SupportedTopkMethods = SupportedTopkMethods.ROTATIONAL,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """The largest elements along the last dimension; the cores of the launch divide the rows.

    Args:
        inp: (..., V) in HBM, at least two dimensions.
        k: elements of each row.
        sorted_flag: whether the largest comes first; otherwise any order will do.
        method: whether rows may be cut.

    Returns:
        Values in the dtype of `inp`, and indices in uint32, (..., k) each.

    Raises:
        KernelLimit: fewer dimensions, k that is not 1 to V, dtypes, sizes for which there is no plan.
    """
    limits.not_built({"method": method if method is SupportedTopkMethods.CASCADED else None}, "topk")
    config = create_topk_config(tuple(inp.shape), inp.dtype, k, sorted_flag, nl.num_programs(0))
    matrix = inp.reshape((prod(inp.shape[:-1]), inp.shape[-1]))
    found = _search(matrix, k, sorted_flag, _plan(matrix.shape, k, nl.num_programs(0), method))
    values, indices = (each.reshape(config.out_shape) for each in found)
    return values, indices


def _plan(shape: tuple[int, ...], k: int, cores: int, method: SupportedTopkMethods) -> TopkPlan:
    rows, columns = shape
    plan = planned(ceil_div(rows, cores), columns, k, whole=method is SupportedTopkMethods.SCANNING)
    if plan is None:
        raise KernelLimit(
            "nkilib.shape",
            f"k is {k}, a row has {columns} elements",
            rule="the segments of a row, with what they give each other, have at most 16,384 elements each",
            fix="cut rows in parts, call topk for each, and again for what they have found",
            k=k,
            columns=columns,
        )
    return plan


# ---------------------------------------------------------------------------------------------------------- the search


def _search(source: Any, k: int, ordered: bool, plan: TopkPlan) -> tuple[Any, Any]:
    """Values and indices, (rows, k) each."""
    limits.generation("topk", 3, "Vector selects by position there")
    limits.dtype("inp", source, _FLOATS)
    rows = source.shape[0]
    found = result((rows, k), source.dtype), result((rows, k), nl.uint32)
    ring = None if plan.segments == 1 else Ring(plan, *source.shape)
    for some in spans(rows, ceil_div(rows, nl.num_programs(0)), shared=True):
        for block in spans(size(some), nl.tile_size.pmax):
            here = slice(some.start + block.start, some.start + block.stop)
            if ring is None:
                values, indices = taken(_pool(source[here], plan), k)
            else:
                values, indices = ring.search(source, here)
                if ordered or plan.segments * plan.share != k:
                    values, places = taken(values, k)
                    indices = looked_up(indices, places)
            put(values, indices, found, here)
    return found


def _pool(source: Any, plan: TopkPlan) -> Any:
    """Rows of HBM that are not cut, as what is searched: float32, with room for what comes."""
    rows, columns = source.shape
    pool = sbuf((rows, plan.widest), nl.float32)
    if columns < plan.widest:
        nisa.memset(dst=pool[:, columns:], value=TAKEN)
    for part in spans(columns, PIECE):
        clamped(load(source[:, part]), into=pool[:, part])
    return pool
