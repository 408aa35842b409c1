"""How compiled functions read the words of a record and of the context."""

from __future__ import annotations

from typing import NamedTuple

from nki.native.operand_layout import BASES, DIMENSIONS, HEADER, SLOT, STREAMED, UNIT
from nki.native.primitives.writer import POINTER, FunctionBuilder

SCRATCH = 0
GATHER = {1: 2, 2: 3, 4: 4}
SCATTER = {1: 5, 2: 6, 4: 7}
THREAD = 8
THREADS = 9
SHARED = 10
YIELD = 11
EXPONENTS = 12
"""Words of the context.

`THREAD` of `THREADS` (0 and 1 both mean one), the address of the words that the threads share (`ARRIVED`, `PHASE`,
`STOPPED`; zero at the start; None needed for one thread), the address of ``int sched_yield(void)`` or 0, and from which
sum of exponents on dot products are in order, as the function `order` of the base module says.
"""

ARRIVED, PHASE, STOPPED = 0, 1, 2
"""Words that threads share: who waits at the barrier, how many barriers were passed, whether a thread has stopped."""

LENGTH_BITS = 32
HOME_BITS = 16
ALONE = 1 << (LENGTH_BITS + HOME_BITS)
"""words[1]: the length of the record, from bit 32 on its home (the number of its first partition among the 128, which
only says which thread executes what), and this flag: thread 0 executes all partitions."""

JUMP = 2
"""What the function of a record returns to go on at word 3 of the record."""

RECORD_ARGUMENTS = ("%words: !llvm.ptr", "%ctx: !llvm.ptr", "%first: i64", "%last: i64")


class SlotValues(NamedTuple):
    """Names of the values of a slot; `dims` points at its ten words."""

    pointer: str
    stride: str
    unit: str
    dims: str


def slot(w: FunctionBuilder, index: int | str) -> SlotValues:
    """The slot with this number of ``%words``."""
    if isinstance(index, int):
        start = w.at("%words", 8 * (HEADER + SLOT * index))
    else:
        start = w.at("%words", w.add(w.mul(index, 8 * SLOT), 8 * HEADER))
    base = w.word("%ctx", w.add(w.word(start, 0), BASES), POINTER)
    pointer = w.at(base, w.word(start, 1))
    return SlotValues(pointer, w.word(start, 2), w.is_("ne", w.word(start, UNIT), 0), w.at(start, 32))


def is_streamed(w: FunctionBuilder, dims: str) -> str:
    """i1: whether the slot with these `dims` is a destination that is written past the caches."""
    return w.is_("eq", w.load("i64", w.at(dims, -8), 8), STREAMED)


def dims_of(w: FunctionBuilder, pointer: str) -> list[tuple[str, str]]:
    """Counts and strides, the fastest last."""
    return [(w.word(pointer, 2 * i), w.word(pointer, 2 * i + 1)) for i in range(DIMENSIONS)]


def row_helper(w: FunctionBuilder, word: int | str, arguments: tuple[str, str, str]) -> None:
    """Call the gather or scatter function that this word of the context names."""
    function = w.word("%ctx", word, POINTER)
    w.line(f"llvm.call {function}({', '.join(arguments)}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()")
