"""Copies and fills on chip: tensor_copy, memset, tensor_copy_predicated."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.dtypes import find, uint8, uint16, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import FreeIndirection, MemoryRegion, View
from nki.isa.indirection import indirection_rules, no_indirection
from nki.isa.shared import not_both_psum, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import two_inputs
from nki.spec.cost_vector import COPY, MEMSET
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import Dst, Flag, Name, Number, Operand, Src, choice, out, source
from nki.spec.rule import Rule

_ISA = "nki/api/nki/isa"
_EngineChoice = Annotated[Engine, choice(Engine)]
_INDIRECTION = "nki/api/nki/isa tensor_copy, Tensor indirection"


def _indirect(view: View) -> bool:
    return isinstance(view.dynamic, FreeIndirection)


@instruction(
    moves_bits=True,
    engines=(Engine.vector, Engine.scalar, Engine.gpsimd),
    source=_ISA,
    rules=[
        same_elements("dst", "src"),
        Rule(
            "scalar-target",
            "tensor_copy on the Scalar engine exists on the target",
            lambda a, t: a.engine is not Engine.scalar or t.has("scalar_tensor_copy"),
            _ISA,
            "use nisa.activation(op=nl.copy), or omit engine",
            lambda a, t: f"the target is {t.name}",
        ),
        Rule(
            "packed-cast",
            "packed x4 values are copied, not cast",
            lambda a, t: a.dst.dtype == a.src.dtype or not (a.dst.dtype.is_packed or a.src.dtype.is_packed),
            _ISA,
            "give dst the dtype of src",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        *indirection_rules("dst", "src", Engine.vector),
        Rule(
            "indirect-engine",
            "a view made by .indirect() is copied by the Vector or the Scalar engine",
            lambda a, t: a.engine is not Engine.gpsimd or not (_indirect(a.dst) or _indirect(a.src)),
            _INDIRECTION,
            "omit engine",
            lambda a, t: "engine is nisa.engine.gpsimd",
        ),
        Rule(
            "indirect-psum",
            "the Scalar engine does not scatter to PSUM",
            lambda a, t: a.engine is not Engine.scalar or not _indirect(a.dst) or a.dst.region is not MemoryRegion.psum,
            _INDIRECTION,
            "omit engine, or scatter to SBUF",
            lambda a, t: f"dst is made by .indirect() from {a.dst.describe()}",
        ),
    ],
    deprecated=[
        Deprecated(
            "dtype",
            "the dtype of dst decides; give dst the dtype that the result should have",
            lambda value, bound: find(value) is not None,
            "it is not a dtype",
        ),
    ],
    steps=COPY,
)
def tensor_copy(dst: Dst, src: Src, engine: _EngineChoice = Engine.unknown, name: Name = None) -> None:
    """``dst = src`` on chip; the same partitions and elements per partition, ranks may differ.

    Bits are copied if the dtypes are equal (on the Scalar engine from NeuronCore-v3 on), else values
    pass through float32. GpSimd cannot reach PSUM.

    Args:
        dst, src: SBUF or PSUM.
    """


@tensor_copy.body
def _(a: Any, x: Arrays) -> None:
    exact = x.engine is not Engine.scalar or x.target.has("scalar_copy_exact")
    if exact or a.dst.dtype != a.src.dtype or a.src.dtype.is_packed:
        x.copy(a.dst, a.src)
    else:
        x.store(a.dst, x.load(a.src))


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


@instruction(
    moves_bits=True,
    engines=(Engine.vector, Engine.gpsimd),
    source=_ISA,
    rules=[
        Rule(
            "value-kind",
            "the value has the kind of dst: an int (or 0.0) for integers, 0 for packed x4 dtypes",
            # 0.0 is the same bits everywhere, and published kernels write it into integer tiles
            lambda a, t: a.value == 0 or not (a.dst.dtype.is_packed or (a.dst.dtype.is_integer and _is_float(a.value))),
            "release-notes/components/nki.rst 0.3.0",
            "pass an int, or use a floating-point tensor",
            lambda a, t: f"value is {a.value!r}, dst is {a.dst.dtype}",
        ),
        Rule(
            "value-range",
            "an integer value fits the dtype of dst",
            lambda a, t: not a.dst.dtype.is_integer or a.dst.dtype.min <= a.value <= a.dst.dtype.max,
            _ISA,
            "use a wider dtype",
            lambda a, t: f"value is {a.value!r}, dst is {a.dst.dtype}",
        ),
        no_indirection(),
    ],
    steps=MEMSET,
)
def memset(dst: Dst, value: Number, engine: _EngineChoice = Engine.unknown, name: Name = None) -> None:
    """Fill `dst` with a constant that is known when the kernel is compiled.

    Any dtype; packed x4 dtypes take only 0. PSUM needs the Vector engine.

    Args:
        dst: SBUF or PSUM.
        value: a number, which is rounded to the dtype of `dst`.
    """


@memset.body
def _(a: Any, x: Arrays) -> None:
    if a.dst.dtype.is_packed:
        x.store_raw(a.dst, x.rounded(0.0, a.dst.dtype))
    elif a.dst.dtype.is_integer:
        x.store_raw(a.dst, a.dst.dtype.numpy.type(int(a.value)))
    else:
        x.store(a.dst, x.constant(a.value))


@instruction(
    moves_bits=True,
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "src", "predicate"),
        not_both_psum("src", "predicate"),
        Rule(
            "packed-number",
            "a number other than 0 cannot be written to a packed x4 dtype",
            lambda a, t: isinstance(a.src, View) or a.src == 0 or not a.dst.dtype.is_packed,
            _ISA,
            "copy from a tensor",
            lambda a, t: f"src is {a.src!r}, dst is {a.dst.dtype}",
        ),
        Rule(
            "dtypes",
            "src and dst have the same dtype",
            lambda a, t: not isinstance(a.src, View) or a.src.dtype == a.dst.dtype,
            _ISA,
            "cast one of them first",
            lambda a, t: f"src is {a.src.dtype}, dst is {a.dst.dtype}",
        ),
        *indirection_rules("dst", "predicate", Engine.vector),
    ],
    steps=two_inputs("TensorCopyPredicated", "src", "predicate"),
)
def tensor_copy_predicated(
    dst: Annotated[NkiTensor, out(also_read=True)],
    src: Annotated[float | NkiTensor, Operand("tensor_or_number", reads=True)],
    predicate: Annotated[NkiTensor, source(dtypes=(uint8, uint16, uint32))],
    reverse_pred: Flag = False,
    name: Name = None,
) -> None:
    """Where `predicate` is not zero (or is zero, with `reverse_pred`), ``dst = src``; elsewhere `dst` stays.

    Args:
        dst: SBUF or PSUM.
        src: a tensor of as many elements as `dst`, or a number.
        predicate: unsigned integers, as many as `dst` has elements.
    """


@tensor_copy_predicated.body
def _(a: Any, x: Arrays) -> None:
    old = x.load_raw(a.dst)
    new = x.load_raw(a.src) if isinstance(a.src, View) else x.rounded(a.src, a.dst.dtype)
    chosen = x.load_raw(a.predicate)
    x.store_raw(a.dst, x.where(chosen, old, new) if a.reverse_pred else x.where(chosen, new, old))
