"""Writes that leave a part of their destination as it was: skipped rows, gathers, copies under a predicate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nki.core.tensor import View
from nki.passes.lint.writers import NOBODY
from nki.spec.engine import oob_mode
from nki.spec.program import Issued


def keeps_a_part(issued: Issued, view: View) -> bool:
    """Whether some elements of a destination may stay as they were."""
    operands = issued.instruction.operands
    if any(operands[name].partial for name, each in issued.views() if each is view):
        return True
    skips = "oob_mode" in operands and issued.arguments.oob_mode is oob_mode.skip
    return skips and any(each.dynamic is not None for _, each in issued.views())


class _PredicatedCopy(NamedTuple):
    """A copy under a predicate onto memory that nobody has written."""

    issued: Issued
    view: View

    @property
    def chosen(self) -> tuple[View, View, bool]:
        """Where the copy writes, the predicate, and whether that is reversed."""
        a = self.issued.arguments
        return self.view, a.predicate, bool(a.reverse_pred)


class Kept:
    """Follows copies under a predicate onto unwritten memory, until the other half of it is written as well."""

    def __init__(self) -> None:
        self._open: dict[int, _PredicatedCopy] = {}

    def write(self, issued: Issued, view: View, number: int, before: set[int]) -> None:
        """A write; `before` has the numbers of those whose bytes are overwritten."""
        if "predicate" not in issued.instruction.operands or "reverse_pred" not in issued.instruction.operands:
            return
        if not any(o.reads and o.writes for o in issued.instruction.operands.values()):
            return
        this = _PredicatedCopy(issued, view)
        where, predicate, reverse = this.chosen
        for other in before & self._open.keys():
            if self._open[other].chosen == (where, predicate, not reverse):
                del self._open[other]
                return
            self._open[number] = self._open[other]
        if NOBODY in before:
            self._open[number] = this

    def read(self, writers: set[int]) -> Iterator[Issued]:
        """Somebody reads what these have written: copies of whose destination a part may be unwritten."""
        for number in writers & self._open.keys():
            yield self._open.pop(number).issued
