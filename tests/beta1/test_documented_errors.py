"""The published list of errors: each has a refused kernel, or its kernel runs by decision (docs/first-nki.md)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import nki.beta1 as nki
import nki.beta1.compiler as ncc
import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.errors import Beta1Error
from tests.docs.test_documents import ROOT
from tests.rejected import beta1_access, beta1_instructions, beta1_loops, beta1_masks, beta1_memory

X = np.arange(32, dtype=np.float32).reshape(4, 8) / 32
REFUSED = [
    "1d_arange_not_supported",
    "activation_bias_invalid_type",
    "activation_scale_invalid_type",
    "activation_scale_scalar_or_vector",
    "ambiguous_tensor_truth_value",
    "annotation_shape_mismatch",
    "cannot_assign_to_index",
    "cannot_update_immutable_parameter",
    "control_flow_condition_depending_on_arange",
    "copy_dynamic_indirect_indices_not_natively_supported",
    "dynamic_control_flow_not_supported",
    "exceed_max_supported_dimension",
    "failed_to_infer_tile_from_local_tensor",
    "hbm_tensor_with_init_value_not_supported",
    "indirect_indices_are_not_supported_with_nki_api",
    "indirect_indices_free_dim",
    "mutable_parameter_not_returned",
    "nested_kernel_with_spmd_grid",
    "num_partition_exceed_arch_limit",
    "num_partition_mismatch",
    "shared_hbm_must_in_kernel_level",
    "size_of_dimension_exceed_arch_limit",
    "store_dst_shape_smaller_than_other_shape",
    "tensor_access_out_of_bound",
    "tensor_output_not_written_to",
    "unexpected_output_dependencies",
    "unsupported_expression_in_mask",
    "unsupported_memory",
    "unsupported_mixing_basic_advanced_tensor_indexing",
    "while_loop_requires_unconditional_entry",
]


@pytest.mark.parametrize("code", REFUSED)
def test_a_refused_kernel_has_the_code(code: str) -> None:
    topics = (beta1_access, beta1_instructions, beta1_loops, beta1_masks, beta1_memory)
    assert f"beta1.{code}" in {case.code for topic in topics for case in topic.TOPIC.cases}


def test_functions_outside_of_kernels_are_refused() -> None:
    with pytest.raises(Beta1Error, match=r"nl\.ndarray is called outside of a kernel") as caught:
        nl.ndarray((4, 8), nl.float32)
    assert caught.value.code == "beta1.nki_api_outside_of_nki_kernel"


def local_variable_used_out_of_scope(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in range(2):
        tile = nl.load(x) if i < 1 else nl.load(x) * 2.0
    nl.store(out, nl.multiply(tile, 0.5))
    return out


def leading_dimension_of_tensor_must_be_partition(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((2, nl.par_dim(4), 8), x.dtype)
    tiles[1] = nl.load(x)
    nl.store(out, tiles[1])
    return out


def tensor_creation_on_scratchpad_with_init_value_not_supported(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((nl.par_dim(4), 8), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=1024))
    tile[...] = nl.load(x)
    nl.store(out, tile)
    return out


def bias_tensor_must_be_specified_in_allocation(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((nl.par_dim(4), 8), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=1024))
    tile[...] = nisa.activation(np.copy, nl.load(x))
    nl.store(out, tile)
    return out


def transpose_on_tensor_engine_not_allowed_in_allocated_kernel(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    turned = nl.ndarray((nl.par_dim(8), 4), x.dtype, buffer=ncc.psum.mod_alloc(base_bank=0))
    turned[...] = nisa.nc_transpose(nl.load(x), engine=nisa.tensor_engine)
    nl.store(out, nl.transpose(nl.copy(turned)))
    return out


@pytest.mark.parametrize(
    "kernel",
    [
        local_variable_used_out_of_scope,
        leading_dimension_of_tensor_must_be_partition,
        tensor_creation_on_scratchpad_with_init_value_not_supported,
        bias_tensor_must_be_specified_in_allocation,
        transpose_on_tensor_engine_not_allowed_in_allocated_kernel,
    ],
)
def test_kernels_run_that_the_old_compiler_refused(kernel: Any) -> None:
    """The page says so of each."""
    assert f"err_{kernel.__name__}" in re.sub(r"\s+", " ", (ROOT / "docs/first-nki.md").read_text(encoding="utf-8"))
    made = nki.jit(kernel)
    one, two = made(X), made.simulated()(X)
    assert np.array_equal(one, X)
    assert one.tobytes() == two.tobytes()
