"""The transpose between partitions and elements, on the Tensor engine or in 32 x 32 squares on Vector."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.dtypes import as_dtype, float32, uint8
from nki.core.tensor import MemoryRegion, View
from nki.isa.matmul_rules import REMOVED_MASK, bank_rule, same_storage, slot_rule
from nki.isa.shared import in_psum
from nki.spec.arrays import Arrays
from nki.spec.cost_tensor import TRANSPOSE
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import Dst, Name, Src, choice
from nki.spec.rule import Rule
from nki.target.model import Target

_TRANSPOSE = "nki/api/nki/isa nc_transpose"


def _transpose_engine(a: Any, t: Target) -> Engine:
    """As the buffers demand: only the Tensor engine is unable to read PSUM or to write SBUF."""
    if a.engine is not Engine.unknown:
        return Engine(a.engine)
    return Engine.tensor if in_psum(a.dst) and a.data.region is MemoryRegion.sbuf else Engine.vector


def _by_tensor(a: Any, t: Target) -> bool:
    return _transpose_engine(a, t) is Engine.tensor


def _by_bits(a: Any, t: Target) -> bool:
    return _by_tensor(a, t) and t.pe.transpose_exact


def _by_product(a: Any, t: Target) -> bool:
    return _by_tensor(a, t) and not t.pe.transpose_exact


@instruction(
    moves_bits=True,
    engines=(Engine.tensor, Engine.vector),
    choose=_transpose_engine,
    source=_TRANSPOSE,
    rules=[
        Rule(
            "engine-memory",
            "the Tensor engine transposes from SBUF to PSUM",
            lambda a, t: not _by_tensor(a, t) or (in_psum(a.dst) and a.data.region is MemoryRegion.sbuf),
            _TRANSPOSE + ", Memory types",
            "use engine=nisa.engine.vector, or a dst in PSUM and data in SBUF",
            lambda a, t: f"dst is in {a.dst.region}, data is in {a.data.region}",
        ),
        Rule(
            "dtype",
            "dst has the dtype of data; float32 too where the Tensor engine multiplies",
            lambda a, t: same_storage(a.dst, a.data) or (_by_product(a, t) and a.dst.dtype == float32),
            _TRANSPOSE + ", Data types",
            "allocate dst with the dtype of data",
            lambda a, t: f"dst is {a.dst.dtype}, data is {a.data.dtype}",
        ),
        Rule(
            "input-dtype",
            "without bit-exact transposes the Tensor engine multiplies by an identity matrix and takes floats only",
            lambda a, t: not _by_product(a, t) or a.data.dtype in t.pe.input_dtypes,
            _TRANSPOSE + "; nc_matmul, Data types",
            "use engine=nisa.engine.vector, or cast the data",
            lambda a, t: f"data is {a.data.dtype}, the target is {t.name}",
        ),
        Rule(
            "size",
            "the Tensor engine transposes up to {t.limits.tensor_transpose} x {t.limits.tensor_transpose}, "
            "the Vector engine up to {t.limits.vector_transpose} x {t.limits.vector_transpose}",
            lambda a, t: (
                max(a.data.partitions, a.data.free_size)
                <= (t.limits.tensor_transpose if _by_tensor(a, t) else t.limits.vector_transpose)
            ),
            _TRANSPOSE + ", Tile size",
            "tile data, or use the Tensor engine with a dst in PSUM",
            lambda a, t: f"data is {a.data.partitions} x {a.data.free_size} on {_transpose_engine(a, t).name}",
        ),
        Rule(
            "shape",
            "dst has a partition for each element of data's partitions, and an element for each partition of data",
            lambda a, t: (a.dst.partitions, a.dst.free_size) == (a.data.free_size, a.data.partitions),
            _TRANSPOSE + ", Layout",
            "swap both sizes",
            lambda a, t: (
                f"dst is {a.dst.partitions} x {a.dst.free_size}, data is {a.data.partitions} x {a.data.free_size}"
            ),
        ),
        slot_rule("data", _by_bits),
        bank_rule(_by_tensor),
    ],
    deprecated=[
        Deprecated(
            "dtype",
            "give dst the dtype that the result should have",
            lambda value, bound: as_dtype(value) == bound["dst"].dtype,
            "it differs from the dtype of dst",
        ),
        REMOVED_MASK,
    ],
    steps=TRANSPOSE,
)
def nc_transpose(
    dst: Dst, data: Src, engine: Annotated[Engine, choice(Engine)] = Engine.unknown, name: Name = None
) -> None:
    """``dst = data.T``: partitions become elements, and the flattened free dimensions become partitions.

    Bits are moved, whatever the dtype. On NeuronCore-v2 the Tensor engine multiplies floats by an identity matrix
    instead: NaN or an infinity spoils its row of dst, and dst may be float32. From NeuronCore-v3 on, 1-byte elements
    leave the Tensor engine in 16-bit slots, the upper byte zero: dst steps by 2 elements.

    Args:
        dst: same dtype; PSUM for the Tensor engine, SBUF or PSUM for the Vector engine.
        data: SBUF for the Tensor engine (up to 128 x 128), SBUF or PSUM for the Vector engine (up to 32 x 32).
        engine: tensor or vector; by default Tensor from SBUF to PSUM, else Vector.
    """


@nc_transpose.body
def _(a: Any, x: Arrays) -> None:
    if x.engine is Engine.vector:
        x.store_raw(a.dst, x.transpose(x.load_raw(a.data)))
    elif x.target.pe.transpose_exact:
        move_bits(x, a.dst, a.data)
    else:
        x.accumulate(a.dst, x.matmul(x.load(a.data), x.identity(a.data.partitions)), False)


def move_bits(x: Arrays, dst: View, data: View) -> None:
    """Transpose storage values; 1-byte ones get a zero byte above."""
    x.store_raw(dst, x.transpose(x.load_raw(data)))
    if dst.dtype.itemsize == 1:
        upper = dst._replace(offset=dst.offset + 1, dtype=dst.dtype if dst.dtype.is_float else uint8)
        x.store(upper, x.constant(0.0))
