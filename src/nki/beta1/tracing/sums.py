"""Sums in PSUM: the first product of a sum overwrites, and only the later ones add.

``sums = nl.zeros(..., buffer=nl.psum)`` and then ``sums += nl.matmul(...)`` is how kernels begin a sum. The Tensor
engine of most targets cannot add to what another engine wrote; a product that starts the sum gives the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import copysign

import nki.isa as nisa
from nki.core.tensor import MemoryRegion, View
from nki.frontend.loops.regions import BodyPass
from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Accesses
from nki.spec.program import Issued, Program
from nki.target.model import Target


@dataclass(eq=False, slots=True)
class Sums:
    """What was written to each tensor of PSUM since it was filled as a whole.

    Attributes:
        needless: fills that a product replaces.
    """

    needless: list[Issued] = field(default_factory=list)
    _seen: int = 0
    _since: int | None = None
    _written: dict[int, dict[View, Issued]] = field(default_factory=dict)
    _accesses: Accesses | None = None

    def forget(self, body: BodyPass) -> None:
        """Where a loop of the device begins or ends, or a trip of it: nobody knows what wrote a tensor before."""
        self._written.clear()
        self._seen, self._since = body.position, len(body.allocated)

    def begins(self, product: View, body: BodyPass, program: Program, target: Target) -> bool | None:
        """Whether a product starts a sum at a view, or adds to one.

        None if it adds to what other engines wrote, or trips before this one.
        """
        self._look(body)
        for view, issued in reversed(self._written.get(id(product.buffer), {}).items()):
            if view != product and self._apart(view, product, program, target):
                continue
            covered = view == product or _is_whole(view)
            if covered and _is_zero_fill(issued):
                return True
            return False if covered and issued.instruction is nisa.nc_matmul else None
        if self._since is None or any(buffer is product.buffer for buffer in body.allocated[self._since :]):
            return True
        return None

    def _apart(self, one: View, other: View, program: Program, target: Target) -> bool:
        self._accesses = self._accesses or Accesses(program, target)
        return disjoint(self._accesses.footprint(one), self._accesses.footprint(other))

    def begun(self, product: View) -> None:
        """Note that a product has begun a sum: a fill of its view alone is not needed any more."""
        fill = self._written.get(id(product.buffer), {}).get(product)
        if fill is not None and _is_zero_fill(fill):
            self.needless.append(fill)

    def _look(self, body: BodyPass) -> None:
        """Note what the instructions since the last time wrote."""
        items = body.passed
        for issued in items[self._seen :]:
            if type(issued) is not Issued:
                continue
            for at in issued.instruction.written_positions:
                view = issued.arguments[at]
                if type(view) is not View or view.buffer.region is MemoryRegion.psum:
                    self.note(issued)
        self._seen = len(items)

    def note(self, issued: Issued) -> None:
        """Note what an instruction wrote."""
        for view in issued.written():
            if view.buffer.region is not MemoryRegion.psum:
                continue
            found = self._written.setdefault(id(view.buffer), {})
            if _is_whole(view):
                found.clear()
            found.pop(view, None)
            found[view] = issued


def _is_whole(view: View) -> bool:
    return view.dynamic is None and view.size * view.dtype.itemsize == view.buffer.nbytes


def _is_zero_fill(issued: Issued) -> bool:
    if issued.instruction is not nisa.memset:
        return False
    value = issued.arguments.value
    return bool(value == 0 and copysign(1.0, value) > 0.0)
