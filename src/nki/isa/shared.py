"""Rules and predicates that several instruction families use."""

from __future__ import annotations

from typing import Any

from nki.core.dtypes import uint8, uint16, uint32
from nki.core.tensor import MemoryRegion, View
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_UNSIGNED = {dtype.itemsize: dtype for dtype in (uint8, uint16, uint32)}


def in_psum(value: Any) -> bool:
    """True for a PSUM tensor."""
    return isinstance(value, View) and value.region is MemoryRegion.psum


def as_bits(view: View) -> View:
    """A view of the elements as unsigned integers, so that signed and unsigned ones combine without a cast."""
    return view._replace(dtype=_UNSIGNED[view.dtype.itemsize])


def same_elements(*names: str) -> Rule:
    """All named operands have equally many partitions and elements per partition; their ranks may differ."""

    def holds(a: Any, t: Target) -> bool:
        views = [getattr(a, name) for name in names]
        views = [v for v in views if isinstance(v, View)]
        return len({(v.shape[0], v.free_size) for v in views}) <= 1

    def actual(a: Any, t: Target) -> str:
        shown = [(name, getattr(a, name)) for name in names]
        return ", ".join(f"{name} has {v.shape[0]} x {v.free_size}" for name, v in shown if isinstance(v, View))

    return Rule(
        "shapes",
        f"{', '.join(names)} have the same partitions and elements per partition (no broadcasting)",
        holds,
        _ISA,
        _REPEAT,
        actual,
        remedy=lambda a, t: _repeated({name: getattr(a, name) for name in names}),
    )


_REPEAT = "slice or reshape the operands to the same size; broadcast with tensor.broadcast or nisa.tensor_scalar"


def _repeated(operands: dict[str, Any]) -> str:
    """How a row or a column that NumPy would repeat is repeated here."""
    views = {name: v for name, v in operands.items() if isinstance(v, View)}
    rows, columns = max(v.shape[0] for v in views.values()), max(v.free_size for v in views.values())
    for name, v in views.items():
        if name == "dst" or len(v.shape) != 2:
            continue
        if (v.shape[0], v.free_size) == (1, columns):
            wide = f"write nl.broadcast_to({name}, ({rows}, {columns}))"
            return f"{name} is one row: {wide}, or load it from HBM with src=row.broadcast(0, {rows})"
        if (v.shape[0], v.free_size) == (rows, 1):
            return f"{name} is one column: write {name}.broadcast(1, {columns}), or use nisa.tensor_scalar"
    return _sliced(views) or _REPEAT


def _sliced(views: dict[str, View]) -> str:
    """The slices after which operands fit that differ in one dimension, in which none is smaller than dst."""
    if len({len(v.shape) for v in views.values()}) > 1 or "dst" not in views:
        return ""
    dst = views["dst"].shape
    differing = {
        d for v in views.values() for d, (size, least) in enumerate(zip(v.shape, dst, strict=True)) if size != least
    }
    if len(differing) != 1:
        return ""
    dim = differing.pop()
    longer = {name: v.shape[dim] for name, v in views.items() if v.shape[dim] != dst[dim]}
    if min(longer.values()) < dst[dim]:
        return ""
    index = ":, " * dim + f"0:{dst[dim]}"
    what = "rows" if dim == 0 else "elements"
    return "; ".join(
        f"{name} has {size} {what} and dst {dst[dim]}: write {name}[{index}]" for name, size in longer.items()
    )


def not_both_psum(first: str, second: str) -> Rule:
    """Two inputs of one instruction cannot both come from PSUM."""
    return Rule(
        "both-psum",
        f"{first} and {second} are not both in PSUM",
        lambda a, t: not (in_psum(getattr(a, first)) and in_psum(getattr(a, second))),
        _ISA,
        "copy one of them to SBUF with nisa.tensor_copy",
        lambda a, t: f"{first} and {second} are in PSUM",
    )


def bitvec_integers(*names: str) -> Rule:
    """Bitvec operators take integer tensors of one dtype and never cast."""

    def holds(a: Any, t: Target) -> bool:
        operators = [getattr(a, n) for n in ("op", "op0", "op1") if n in a._fields]
        if not any(op is not None and op.is_bitvec for op in operators):
            return True
        views = [v for v in (getattr(a, n) for n in names) if isinstance(v, View)]
        return all(v.dtype.is_integer for v in views) and len({v.dtype.itemsize for v in views}) == 1

    return Rule(
        "bitvec-dtype",
        "bitvec operators need integer operands of one size",
        holds,
        "nki/api/nki.api.shared.rst",
        "view or cast the operands as one integer dtype",
        lambda a, t: ", ".join(f"{n} is {getattr(a, n).dtype}" for n in names if isinstance(getattr(a, n), View)),
    )


def on_partitions_of(reference: str, *names: str) -> Rule:
    """Tensor columns have the partitions of the reference operand."""

    def holds(a: Any, t: Target) -> bool:
        count = getattr(a, reference).shape[0]
        return all(not isinstance(getattr(a, n), View) or getattr(a, n).shape[0] == count for n in names)

    return Rule(
        "column-partitions",
        f"{', '.join(names)} have the partitions of {reference}",
        holds,
        _ISA,
        f"slice them to the partitions of {reference}",
        lambda a, t: (
            f"{reference} has {getattr(a, reference).shape[0]} partitions, "
            + ", ".join(f"{n} has {getattr(a, n).shape[0]}" for n in names if isinstance(getattr(a, n), View))
        ),
    )
