"""nki.language has every name and parameter of nki/api/nki/language/__init__.py (NKI 0.6.0)."""

from __future__ import annotations

import inspect

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType
from nki.spec.operator import Operator, operator_of
from tests.together import together

# parameters, then the functions that have them
FUNCTIONS = {
    "buffer": """
        is_hbm is_on_chip is_psum is_sbuf
    """,
    "x, y, dtype=None": """
        add subtract multiply divide maximum minimum abs_max abs_min power equal not_equal less less_equal
        greater greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or
        logical_xor fmod mod
    """,
    "x, dtype=None": """
        abs square invert logical_not exp log sqrt rsqrt tanh sigmoid relu gelu gelu_apprx_sigmoid
        gelu_apprx_tanh gelu_dx gelu_apprx_sigmoid_dx silu silu_dx softplus mish erf erf_dx reciprocal copy
        sin cos tan arctan ceil floor trunc negative sign transpose
    """,
    "x, axis, dtype=None, keepdims=False": """
        sum max min mean prod var
    """,
    "x, axis, dtype=None": """
        all
    """,
    "x, axis=-1, dtype=None": """
        softmax
    """,
    "x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None": """
        rms_norm
    """,
    "condition, x, y, dtype=None": """
        where
    """,
    "x, rate, dtype=None": """
        dropout
    """,
    "shape, dtype, buffer=sbuf, name=''": """
        ones zeros rand
    """,
    "shape, fill_value, dtype, buffer=sbuf, name=''": """
        full
    """,
    "x, dtype=None, buffer=None, name=''": """
        zeros_like empty_like
    """,
    "seed": """
        random_seed
    """,
    "x, axis": """
        expand_dims
    """,
    "x, shape, dtype=None": """
        broadcast_to
    """,
    "x, y, transpose_x=False": """
        matmul
    """,
    "": """
        no_reorder program_ndim
    """,
    "src, dtype=None": """
        load_transpose2d load
    """,
    "data, indices, axis=0, dtype=None": """
        gather_flattened
    """,
    "start, size": """
        ds
    """,
    "start, stop=None, step=1": """
        affine_range sequential_range static_range dynamic_range
    """,
    "lower, upper, body_fun, step=1": """
        fori_loop
    """,
    "init, body_fun": """
        while_loop
    """,
    "shape, dtype, buffer=sbuf, name='', address=None": """
        ndarray
    """,
    "dst, value": """
        store
    """,
    "axis=0": """
        program_id
    """,
    "axes=0": """
        num_programs
    """,
    "constant": """
        shared_constant
    """,
    "n, dtype=uint8, dst=None": """
        shared_identity_matrix
    """,
    "print_prefix, tensor": """
        device_print
    """,
}
DTYPES = {
    "bool_": 8,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "float16": 16,
    "float32": 32,
    "bfloat16": 16,
    "tfloat32": 32,
    "float8_e4m3": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "float8_e5m2_x4": 32,
    "float8_e4m3fn_x4": 32,
    "float8_e8m0fnu": 8,
    "float4_e2m1fn_x4": 16,
}
REGIONS = {
    "sbuf": "sbuf",
    "psum": "psum",
    "hbm": "private_hbm",
    "private_hbm": "private_hbm",
    "shared_hbm": "shared_hbm",
}
OPERATORS_ONLY = ("average", "bypass", "prelu")
CLASSES = ("DType", "MemoryRegion", "NKIObject", "NkiTensor")
TENSOR_METHODS = {
    "is_contiguous": "",
    "get_pattern": "",
    "is_indirect": "",
    "__getitem__": "key",
    "permute": "dims",
    "broadcast": "dim, size",
    "expand_dim": "dim",
    "squeeze_dim": "dim",
    "reshape_dim": "dim, shape",
    "flatten_dims": "start_dim, end_dim",
    "reshape": "shape",
    "rearrange": "src_pattern, dst_pattern, fixed_sizes=None",
    "__setitem__": "key, value",
    "slice": "dim, start, end, step=1",
    "select": "dim, index",
    "vector_select": "dim, vector_offset",
    "ap": "pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0, dtype=None",
    "view": "dtype",
    "indirect": "index, num_elem=None",
}
TILE_SIZES = """
    pmax psum_fmax psum_bank_fmax psum_bank_fmax_bytes gemm_stationary_fmax gemm_moving_fmax bn_stats_fmax
    psum_min_align sbuf_min_align psum_num_banks sbuf_size_bytes sbuf_fmax sbuf_fmax_bytes total_available_sbuf_size
"""
# What the tables of nki/api/nki.api.shared.rst accept as op=, ALU operators first.
OPERATORS = """
    add subtract multiply maximum minimum power equal not_equal less less_equal greater greater_equal
    logical_and logical_or logical_xor abs_max abs_min
    invert bitwise_and bitwise_or bitwise_xor left_shift right_shift
    copy square sigmoid relu prelu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid gelu_apprx_sigmoid_dx silu silu_dx
    tanh softplus mish erf erf_dx exp log sin arctan sqrt rsqrt reciprocal sign abs
    average bypass
"""
NOT_OPERATORS = ("divide", "mod", "fmod", "negative", "floor", "cos", "sum", "softmax", "logical_not")

EACH = [(name, parameters) for parameters, names in FUNCTIONS.items() for name in names.split()]


@together("name, parameters", EACH)
def test_function_has_the_published_parameters(name: str, parameters: str) -> None:
    assert name in nl.__all__
    assert _parameters(getattr(nl, name)) == parameters


def test_every_function_is_documented() -> None:
    assert [name for name, _ in EACH if not (getattr(nl, name).__doc__ or "").strip()] == []


def test_published_number_of_functions() -> None:
    assert len(EACH) == 103


@together("name, bits", DTYPES.items())
def test_dtype(name: str, bits: int) -> None:
    dtype = getattr(nl, name)
    assert isinstance(dtype, DType) and dtype.bits == bits
    assert dtype.name == name.rstrip("_")


@together("name, value", REGIONS.items())
def test_region(name: str, value: str) -> None:
    assert getattr(nl, name) is nl.MemoryRegion(value)


@together("name", CLASSES)
def test_class(name: str) -> None:
    assert inspect.isclass(getattr(nl, name)) and name in nl.__all__


def test_tensor_is_an_nki_object() -> None:
    assert issubclass(nl.NkiTensor, nl.NKIObject)


@together("name, parameters", TENSOR_METHODS.items())
def test_tensor_method_has_the_published_parameters(name: str, parameters: str) -> None:
    assert _parameters(getattr(nl.NkiTensor, name)).removeprefix("self").removeprefix(", ") == parameters


@together("name", TILE_SIZES.split())
def test_tile_size_exists(name: str) -> None:
    assert isinstance(inspect.getattr_static(nl.tile_size, name), property)


@together("name", OPERATORS.split())
def test_name_is_an_operator_of_instructions(name: str) -> None:
    assert operator_of(getattr(nl, name), "op").name == name


@together("name", OPERATORS_ONLY)
def test_name_is_an_operator_and_nothing_else(name: str) -> None:
    assert isinstance(getattr(nl, name), Operator)


@together("name", NOT_OPERATORS)
def test_composition_is_no_operator(name: str) -> None:
    with pytest.raises(TypeError, match=r"operand\.operator"):
        operator_of(getattr(nl, name), "op")


def test_fp32_limits_are_those_of_ieee_754() -> None:
    assert (nl.fp32.min, nl.fp32.max) == (-3.4028234663852886e38, 3.4028234663852886e38)


def test_all_lists_no_name_twice() -> None:
    assert len(set(nl.__all__)) == len(nl.__all__)


def test_operators_of_the_table_are_those_of_the_instruction_set() -> None:
    assert operator_of(nl.add, "op") is operator_of(nl.add, "op0")
    assert nisa.tensor_tensor.operands["op"].kind == "operator"


def _parameters(function: object) -> str:
    """As published, with dtypes and regions by their names."""
    shown = []
    for name, parameter in inspect.signature(function).parameters.items():  # type: ignore[arg-type]
        default = parameter.default
        if default is inspect.Parameter.empty:
            shown.append(name)
        else:
            text = str(default) if isinstance(default, DType | nl.MemoryRegion) else repr(default)
            shown.append(f"{name}={text}")
    return ", ".join(shown)
