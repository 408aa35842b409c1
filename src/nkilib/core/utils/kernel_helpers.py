"""Small questions that kernels ask: sizes in tiles, cores of the launch, functions and limits by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce as fold
from operator import add, mul
from types import MappingProxyType
from typing import Any

import nki.language as nl
from nkilib.core.utils.common_types import ActFnType, NormType
from nkilib.core.utils.kernel_assert import kernel_assert

NUM_HW_PSUM_BANKS = 8
PSUM_BANK_SIZE = 2048

_FUNCTIONS = MappingProxyType(
    {
        ActFnType.SiLU: nl.silu,
        ActFnType.GELU: nl.gelu,
        ActFnType.GELU_Tanh_Approx: nl.gelu_apprx_tanh,
        ActFnType.Swish: nl.gelu_apprx_sigmoid,
        ActFnType.ReLU: nl.relu,
    }
)
_LARGEST = MappingProxyType({nl.float8_e4m3: 240.0, nl.float8_e4m3fn: 448.0, nl.float8_e5m2: 57344.0})
_FOLDS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType({"mul": mul, "add": add, "min": min, "max": max})


def get_ceil_quotient(numerator: int, denominator: int) -> int:
    """The quotient, rounded up."""
    return -(-numerator // denominator)


div_ceil = get_ceil_quotient


def get_ceil_aligned_size(size: int, alignment_multiple: int) -> int:
    """The next multiple that is not smaller."""
    return get_ceil_quotient(size, alignment_multiple) * alignment_multiple


def get_floor_quotient(numerator: int, denominator: int) -> int:
    """The quotient, rounded down."""
    return numerator // denominator


def get_floor_aligned_size(size: int, alignment_multiple: int) -> int:
    """The last multiple that is not larger."""
    return size // alignment_multiple * alignment_multiple


def is_hbm_buffer(tensor: Any) -> bool:
    """Whether a tensor lies in device memory."""
    return tensor.buffer in (nl.hbm, nl.shared_hbm, nl.private_hbm)


def is_launched_as_spmd() -> bool:
    """Whether several cores run this kernel."""
    return bool(nl.program_ndim() != 0 and nl.num_programs(axes=0) > 1)


def get_program_sharding_info() -> tuple[int, int, int]:
    """Dimensions of the launch, how many cores run it, and which one this is: (0, 1, 0) for a call without a grid."""
    dimensions = int(nl.program_ndim())
    return (dimensions, int(nl.num_programs(axes=0)), int(nl.program_id(axis=0))) if dimensions else (0, 1, 0)


def get_verified_program_sharding_info(
    kernel_name: str = "", allowed_ndims: tuple[int, ...] | None = None, max_sharding: int | None = None
) -> tuple[int, int, int]:
    """`get_program_sharding_info`, checked.

    Raises:
        KernelAssertion: the launch has other dimensions, or more cores (``nkilib.argument``).
    """
    found = dimensions, cores, _ = get_program_sharding_info()
    kernel_assert(
        allowed_ndims is None or dimensions in allowed_ndims,
        f"{kernel_name} is launched with {dimensions} dimensions, not one of {allowed_ndims}",
    )
    kernel_assert(
        max_sharding is None or cores <= max_sharding, f"{kernel_name} runs on {cores} cores, not {max_sharding}"
    )
    return found


def is_rms_normalization(norm_type: NormType) -> bool:
    """Whether rows are divided by their root mean square."""
    return norm_type in (NormType.RMS_NORM, NormType.RMS_NORM_SKIP_GAMMA)


def normalization_uses_weights(norm_type: NormType) -> bool:
    """Whether normalised rows are multiplied with weights."""
    return norm_type in (NormType.RMS_NORM, NormType.LAYER_NORM)


def get_nl_act_fn_from_type(act_fn: ActFnType) -> Any:
    """The function of `nki.language`.

    Raises:
        KernelAssertion: there is none of that name (``nkilib.argument``).
    """
    kernel_assert(isinstance(act_fn, ActFnType) and act_fn in _FUNCTIONS, f"no activation function for {act_fn!r}")
    return _FUNCTIONS[act_fn]


def get_max_positive_value_for_dtype(dtype: Any) -> float | None:
    """The largest number of an 8-bit float; None for other dtypes."""
    return _LARGEST.get(dtype)


def reduce(op: str = "mul", input: Sequence[Any] | None = None, initial_value: Any = None) -> Any:
    """All elements put together with the initial value by ``mul``, ``add``, ``min`` or ``max``.

    Raises:
        KernelAssertion: another operator, or an argument is missing (``nkilib.argument``).
    """
    kernel_assert(op in _FOLDS, f"op is {op!r}, not one of {', '.join(_FOLDS)}")
    if input is None or initial_value is None:
        kernel_assert(False, "reduce needs input and initial_value")
    return fold(_FOLDS[op], input or (), initial_value)
