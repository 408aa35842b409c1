"""Which bytes of tensors were written so far, for those who ask."""

from __future__ import annotations

from dataclasses import dataclass, field

from nki.core.tensor import View
from nki.frontend.loops.regions import BodyPass
from nki.frontend.trace import Tracer
from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Accesses
from nki.spec.program import Issued


@dataclass(eq=False, slots=True)
class Written:
    """What the instructions of a trace wrote to tensors on chip, as far as it was looked at."""

    _seen: int = 0
    _since: int | None = None
    _views: dict[int, dict[View, None]] = field(default_factory=dict)
    _accesses: Accesses | None = None

    def forget(self, body: BodyPass) -> None:
        """Where a loop of the device begins or ends, or a trip of it: anything may have been written before."""
        self._views.clear()
        self._seen, self._since = body.position, len(body.allocated)

    def meets(self, view: View, tracer: Tracer) -> bool:
        """Whether anything may have been written to a byte of a view."""
        body = tracer.body
        items = body.passed
        if self._since is not None and all(buffer is not view.buffer for buffer in body.allocated[self._since :]):
            return True
        for issued in items[self._seen :]:
            for written in issued.written() if type(issued) is Issued else ():
                if written.on_chip:
                    self._views.setdefault(id(written.buffer), {})[written] = None
        self._seen = len(items)
        accesses = self._accesses = self._accesses or Accesses(tracer.program, tracer.target)
        return any(
            not disjoint(accesses.footprint(view), accesses.footprint(written))
            for written in self._views.get(id(view.buffer), ())
        )
