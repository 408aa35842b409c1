"""What became of names that kernels use and the modules of NKI do not have: tables of advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of a name.

    Attributes:
        since: version that no longer has it; "" if no documented version had it, but kernels use it.
        instead: what to write today.
    """

    since: str
    instead: str


MIGRATE = "`nki migrate FILE` rewrites kernels of the first NKI, and open-nki-neuronxcc runs them as they are"
"""What to do with a file that is written in it."""


def _first(since: str, instead: str) -> Removed:
    """A name of the first NKI."""
    return Removed(since, f"{instead}; {MIGRATE}")


_SCALAR_OFFSET = "use nisa.tensor_copy with tensor.ap(..., scalar_offset=index)"
_CAST = "use nl.copy(x, dtype=...), or give the dst of an instruction that dtype"
_WIDE = "no engine computes with 64 bits"
_LAUNCH = "launch the kernel on two cores with kernel[2](...), and divide the work by nl.program_id(0)"

NKI: Mapping[str, Removed] = {
    "baremetal": _first("0.1", "call the kernel: @nki.jit kernels run on NumPy, torch and JAX arrays"),
    "simulate_kernel": _first("0.1", "use nki.simulate(kernel)(*arguments)"),
    "trace": _first("0.2", "write @nki.jit, or call the function as it is: kernels may call each other"),
    "tensor": _first("0.2", "annotate with nki.typing.tensor[shape]"),
}

LANGUAGE: Mapping[str, Removed] = {
    "all_reduce": _first("0.2", "exchange tiles between two cores with nisa.sendrecv, and add them with nl.add"),
    "arange": _first("0.2", "slice the tensor: tensor[0:128, 0:512], or tensor.ap(pattern) for other strides"),
    "atomic_rmw": _first("0.2", "use nisa.dma_compute(dst=out, srcs=[tile, out], reduce_op=nl.add)"),
    "bfp16": _first("0.2", "use nl.bfloat16"),
    "cast": Removed("", _CAST),
    "constexpr": Removed("", "leave the annotation out: arguments that are no arrays are constants of the kernel"),
    "dot": Removed("", "use nl.matmul(x, y), or nisa.nc_matmul"),
    "finfo": _first("0.2", "use dtype.min and dtype.max, as nl.bfloat16.min"),
    "float64": Removed("", f"use nl.float32: {_WIDE}"),
    "gemm_grid": _first("0.2", "slice the tensor: tensor[0:128, 0:512]"),
    "gemm_stationary_grid": _first("0.2", "slice the tensor: tensor[0:128, 0:128]"),
    "int64": Removed("", f"use nl.int32: {_WIDE}"),
    "loop_reduce": _first(
        "0.2", "accumulate in the loop: nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)"
    ),
    "mgrid": _first("0.2", "slice the tensor: tensor[0:128, 0:512], or tensor.ap(pattern) for other strides"),
    "nc": _first("0.2", _LAUNCH),
    "par_dim": _first("0.2", "put the partitions first: nl.ndarray((128, 512), ...)"),
    "spmd_dim": _first("0.2", _LAUNCH),
    "static_cast": Removed("", _CAST),
}

_DECORATOR = "delete the decorator: @nki.jit is all that a kernel needs"
_ADDRESS = "write buffer=nl.{0}; nl.ndarray(..., buffer=nl.{0}, address=(partition, offset)) fixes the place"

COMPILER: Mapping[str, Removed] = {
    "allocation_scope": _first("0.2", "delete it: tiles are freed after their last use"),
    "enable_stack_allocator": _first("0.2", _DECORATOR),
    "force_auto_alloc": _first("0.2", f"{_DECORATOR}; tensors without an address= are placed by the compiler"),
    "multi_buffer": _first("0.2", "allocate a tile in each trip of the loop, or a list of tiles before it"),
    "no_reorder": _first("0.2", "write `with nl.no_reorder():`"),
    "psum": _first("0.2", _ADDRESS.format("psum")),
    "sbuf": _first("0.2", _ADDRESS.format("sbuf")),
    "skip_middle_end_transformations": _first("0.2", _DECORATOR),
}

_ACTIVATION = """
    abs arctan erf erf_dx exp gelu gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh gelu_dx log mish prelu relu
    rsqrt sigmoid sign silu silu_dx sin softplus sqrt square tanh
"""
_ALU = """
    abs_max abs_min add bitwise_and bitwise_or bitwise_xor equal greater greater_equal left_shift less less_equal
    logical_and logical_or logical_xor maximum minimum multiply not_equal power right_shift subtract
"""
_REDUCTIONS = {"max": "maximum", "min": "minimum", "sum": "add"}

ISA: Mapping[str, Removed] = {
    "tensor_copy_dynamic_dst": Removed("0.4", _SCALAR_OFFSET),
    "tensor_copy_dynamic_src": Removed("0.4", _SCALAR_OFFSET),
    **{name: Removed("", f"write nisa.activation(dst=y, op=nl.{name}, data=x)") for name in _ACTIVATION.split()},
    **{
        name: Removed(
            "",
            f"write nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.{name}); "
            f"with a number, nisa.tensor_scalar(dst=z, data=x, op0=nl.{name}, operand0=number)",
        )
        for name in _ALU.split()
    },
    **{
        name: Removed("", f"write nisa.tensor_reduce(dst=y, op=nl.{operator}, data=x, axis=1)")
        for name, operator in _REDUCTIONS.items()
    },
    "builtin_custom_op": _first("0.2", "write the operator with instructions"),
    "copy": Removed("", "write nisa.tensor_copy(dst=y, src=x)"),
    "divide": Removed(
        "", "write nisa.reciprocal(dst=r, data=y), and multiply with nisa.tensor_tensor(..., op=nl.multiply)"
    ),
    "fp32": _first("0.2", "use nl.float32.min and nl.float32.max"),
    "invert": Removed("", "write nl.invert(x)"),
    "load": Removed("", "write nisa.dma_copy(dst=tile, src=tensor)"),
    "matmul": Removed("", "write nisa.nc_matmul(dst=psum, stationary=x, moving=y): psum is x transposed, times y"),
    "store": Removed("", "write nisa.dma_copy(dst=tensor, src=tile)"),
    "transpose": Removed("", "write nisa.nc_transpose(dst=y, data=x)"),
}
"""Beside old names: operators and functions of nki.language, which instructions take as op=."""

_FUNCTION = "write nl.{name}(tensor, ...)"
TENSOR: Mapping[str, str] = {
    "T": "write nl.transpose(tensor), or tensor.permute(dims) for a view of it",
    "astype": "write nl.copy(tensor, dtype=...)",
    "to": "write nl.copy(tensor, dtype=...)",
    "copy": "write nl.copy(tensor)",
    "transpose": "write nl.transpose(tensor), or tensor.permute(dims) for a view of it",
    "dot": "write nl.matmul(x, y)",
    "item": "load it with nisa.scalar_load(tensor): values are known when the kernel runs",
    "numpy": "use functions of nki.language: values are known when the kernel runs",
    "fill": "write tensor[...] = value",
    "expand_dims": "write tensor.expand_dim(dim)",
    "squeeze": "write tensor.squeeze_dim(dim)",
    "unsqueeze": "write tensor.expand_dim(dim)",
    "flatten": "write tensor.flatten_dims(start_dim, end_dim)",
    **{
        name: _FUNCTION.format(name=name) for name in ("sum", "mean", "max", "min", "prod", "var", "exp", "sqrt", "abs")
    },
}
"""Attributes of NumPy's arrays and torch's tensors: what to write instead."""
