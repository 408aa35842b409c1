"""Which declarations are tested here, how, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import nki  # noqa: F401 - fills the registry
from tests.isa.properties import (
    references_elementwise,
    references_functions,
    references_moves,
    references_reduce,
    references_select,
    strategies_elementwise,
    strategies_functions,
    strategies_moves,
    strategies_reduce,
    strategies_select,
)
from tests.isa.properties.cases import Case, Reference
from tests.isa.properties.drawing import Chooser, cases


@dataclass(frozen=True)
class Property:
    """A declaration: its cases, and what they must give.

    Attributes:
        instruction: its name.
        calls: draws the arguments of one case.
        reference: independent of the body.
        weight: how many more examples than others it needs, because it has more operators.
    """

    instruction: str
    calls: Callable[[Chooser], tuple[dict[str, Any], ...]]
    reference: Reference
    weight: int

    @property
    def strategy(self) -> st.SearchStrategy[Case]:
        """Cases on all targets that have the instruction."""
        return cases(self.instruction, self.calls)


def _named(strategies: Any, references: Any, weights: dict[str, int]) -> list[Property]:
    """Properties from modules that name strategy and reference like the instruction."""
    return [Property(n, getattr(strategies, n), getattr(references, n), weight) for n, weight in weights.items()]


_ELEMENTWISE = {"tensor_tensor": 5, "tensor_scalar": 6, "scalar_tensor_tensor": 4, "reciprocal": 1}
_ELEMENTWISE |= {"tensor_copy": 3, "memset": 1, "tensor_copy_predicated": 2}
_REDUCE = {"tensor_reduce": 3, "tensor_partition_reduce": 2, "tensor_scalar_reduce": 4, "tensor_scalar_cumulative": 3}
_REDUCE |= {"tensor_tensor_scan": 4, "bn_stats": 1, "bn_aggr": 1}
_FUNCTIONS = {"activation": 6, "activation_reduce": 4, "activate2": 6, "exponential": 2}
_SELECT = {"iota": 1, "affine_select": 2, "range_select": 2, "select_reduce": 2, "max8": 1, "nc_find_index8": 1}
_SELECT |= {"nc_match_replace8": 1, "nonzero_with_count": 1, "topk": 1, "sequence_bounds": 1}
_MOVES = {"nc_n_gather": 1, "local_gather": 1, "nc_stream_shuffle": 1, "nc_transpose": 1, "quantize_mx": 1}
_MOVES |= {"quantize_mx_sample": 1}

_ALL = [
    *_named(strategies_elementwise, references_elementwise, _ELEMENTWISE),
    *_named(strategies_reduce, references_reduce, _REDUCE),
    *_named(strategies_functions, references_functions, _FUNCTIONS),
    *_named(strategies_select, references_select, _SELECT),
    *_named(strategies_moves, references_moves, _MOVES),
]
PROPERTIES = {item.instruction: item for item in _ALL}
"""By instruction."""

_COLLECTIVE = "moves between devices; tests/surface/test_collectives.py"
_DMA = "runs on DMA; tests/isa/test_dma*.py"
_PRODUCT = "matrix product; tests/isa/test_matmul.py"
_RANDOM = "its values are random; tests/isa/test_random.py"
_REGISTER = "works on registers of a sequencer; tests/isa/test_register.py"
_SYNC = "synchronizes or moves between cores; tests/isa/test_sync.py"

ELSEWHERE = {
    "all_reduce": _COLLECTIVE,
    "all_gather": _COLLECTIVE,
    "reduce_scatter": _COLLECTIVE,
    "all_to_all": _COLLECTIVE,
    "collective_permute": _COLLECTIVE,
    "collective_permute_implicit": _COLLECTIVE,
    "collective_permute_implicit_reduce": _COLLECTIVE,
    "collective_rank_id": _COLLECTIVE,
    "collective_processing_rank_id": _COLLECTIVE,
    "all_gather_v": _COLLECTIVE,
    "all_to_all_v": _COLLECTIVE,
    "all_gather_v_setup": _COLLECTIVE,
    "all_to_all_v_setup": _COLLECTIVE,
    "dma_copy": _DMA,
    "dma_compute": _DMA,
    "dma_transpose": _DMA,
    "nc_matmul": _PRODUCT,
    "nc_matmul_mx": _PRODUCT,
    "rng": _RANDOM,
    "rand2": _RANDOM,
    "set_rng_seed": _RANDOM,
    "rand_set_state": _RANDOM,
    "rand_get_state": _RANDOM,
    "dropout": _RANDOM,
    "register_move": _REGISTER,
    "register_load": _REGISTER,
    "register_store": _REGISTER,
    "register_alu": _REGISTER,
    "barrier": _SYNC,
    "core_barrier": _SYNC,
    "sendrecv": _SYNC,
    "device_print": "prints; tests/isa/test_sync.py",
}
"""Declarations that are no arithmetic of an engine, and where they are tested."""
