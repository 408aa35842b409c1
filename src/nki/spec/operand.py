"""Operand types: what may stand in each place of an instruction's signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, View
from nki.target.model import Target

Kind = Literal[
    "tensor",
    "tensor_or_number",
    "column",
    "operator",
    "enum",
    "flag",
    "int",
    "number",
    "ints",
    "numbers",
    "text",
    "tensors",
    "register",
    "register_or_int",
    "pattern",
    "channels",
    "ranks",
    "rank_pairs",
]

SBUF = (MemoryRegion.sbuf,)
PSUM = (MemoryRegion.psum,)
ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)
HBM = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)
DMA_REACHABLE = (*HBM, *SBUF)


Parts = Callable[[Any, Target], Sequence[View]]


@dataclass(frozen=True, slots=True)
class Operand:
    """What an argument may be.

    Attributes:
        kind: "tensor" a tensor; "tensor_or_number" either; "column" a number or a tensor with one element per
            partition; "tensors" a sequence of tensors; "operator" an nl operator; "enum" a member of `choices`;
            "flag" a bool; "int", "number", "ints", "numbers", "pattern", "text": Python constants; "register" a
            register; "register_or_int" either; "channels" a list of lists with one tensor each; "ranks" a replica
            group; "rank_pairs" pairs of ranks.
        reads, writes: whether the instruction does so with the tensor.
        regions: allowed memory regions.
        dtypes: allowed dtypes of a tensor; None allows all.
        choices: the enumeration for kind "enum".
        example: an operator that fits, for messages.
        partial: some elements may stay as they were though the whole tensor is the destination.
        parts: of the arguments and the target: the views that are read or written, if these are not all of the tensor.
        engine_access: False for operands that are reached by DMA, which obeys none of the engines' partition rules.
    """

    kind: Kind
    reads: bool = False
    writes: bool = False
    regions: tuple[MemoryRegion, ...] = ON_CHIP
    dtypes: tuple[DType, ...] | None = None
    choices: type[Enum] | None = None
    example: str = "nl.add"
    partial: bool = False
    engine_access: bool = True
    parts: Parts | None = None

    @property
    def is_tensor(self) -> bool:
        """True if a tensor may stand here."""
        return self.kind in ("tensor", "tensor_or_number", "column", "tensors", "channels")


def out(
    regions: Sequence[MemoryRegion] = ON_CHIP,
    dtypes: Sequence[DType] | None = None,
    *,
    dma: bool = False,
    also_read: bool = False,
    partial: bool = False,
) -> Operand:
    """A tensor that is written."""
    return Operand(
        "tensor",
        reads=also_read,
        writes=True,
        regions=tuple(regions),
        dtypes=_tuple(dtypes),
        engine_access=not dma,
        partial=partial,
    )


def source(
    regions: Sequence[MemoryRegion] = ON_CHIP, dtypes: Sequence[DType] | None = None, *, dma: bool = False
) -> Operand:
    """A tensor that is read."""
    return Operand("tensor", reads=True, regions=tuple(regions), dtypes=_tuple(dtypes), engine_access=not dma)


def column(dtypes: Sequence[DType] | None = None, regions: Sequence[MemoryRegion] = ON_CHIP) -> Operand:
    """A number, or a tensor ``(P, 1)`` with one value per partition."""
    return Operand("column", reads=True, regions=tuple(regions), dtypes=_tuple(dtypes))


def choice(enum: type[Enum]) -> Operand:
    """A member of an enumeration."""
    return Operand("enum", choices=enum)


def _tuple(dtypes: Sequence[DType] | None) -> tuple[DType, ...] | None:
    return None if dtypes is None else tuple(dtypes)


# The aliases that most declarations need. A declaration writes Annotated[NkiTensor, out(PSUM)] for special ones.
Dst = Annotated[NkiTensor, out()]
Src = Annotated[NkiTensor, source()]
SbufDst = Annotated[NkiTensor, out(SBUF)]
SbufSrc = Annotated[NkiTensor, source(SBUF)]
Column = Annotated["float | NkiTensor", column()]
Op = Annotated[Any, Operand("operator")]
Flag = Annotated[bool, Operand("flag")]
Int = Annotated[int, Operand("int")]
Number = Annotated[float, Operand("number")]
Ints = Annotated["Sequence[int]", Operand("ints")]
Pattern = Annotated["Sequence[Sequence[int]]", Operand("pattern")]
Name = Annotated["str | None", Operand("text")]
