"""The NumPy machine: executes one instruction after the other on the bytes of one core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki.core.dtypes import unpack_x4
from nki.core.errors import ExecutionError, NkiError
from nki.core.source import Location
from nki.core.tensor import View
from nki.core.visible import visible
from nki.options import Options
from nki.ranks.protocol import Communicator, Meeting, check_brought
from nki.sim.accumulate import Accumulation
from nki.sim.memory import Memory
from nki.sim.notes import Report
from nki.sim.parcel import Parcel, check_contents, check_route
from nki.spec.program import Issued
from nki.spec.signature import Signature
from nki.target.model import Target

Meet = Callable[[Any, Any, Location], Any]


class Machine(Accumulation):
    """Executes `Issued` records; one per core.

    `ranks` is the way to the other ranks of the launch, `meet` that to the other core, if there is one.
    """

    def __init__(
        self,
        target: Target,
        options: Options,
        memory: Memory,
        report: Report,
        ranks: Communicator,
        core: int = 0,
        meet: Meet | None = None,
    ) -> None:
        super().__init__(target, options, memory, report, core)
        self.matmul_mode = options.matmul
        self.ordered_matmul = options.matmul == "ordered"
        self._ranks = ranks
        self._meet = meet
        self.trips: Counter[int] = Counter()
        """How often the bodies of loops ran, by identity of the loop, where Python counts them."""

    def run_known(self, issued: Issued, signature: Signature) -> None:
        """Execute an instruction whose signature is known, for machines that make use of that; others call `run`."""
        self.run(issued)

    def run(self, issued: Issued) -> None:
        """Execute one verified instruction; an error gets its location."""
        instruction, arguments, location, engine = issued
        self.engine = engine
        self._location = location
        try:
            instruction.execute(arguments, self)
        except NkiError as error:
            if not error.placed:
                error.location = location
            raise

    def executed(self) -> tuple[int, int] | None:
        """How many instructions ran as compiled functions, and how many in NumPy; None for a machine without any."""
        return None

    def tap(self, name: str, view: View, location: Location) -> None:
        """A named intermediate value: nothing to do unless somebody watches."""

    def say(self, prefix: str, view: View) -> None:
        raw = self.load_raw(view).reshape(view.shape)
        if view.dtype.is_packed:
            values = unpack_x4(raw, view.dtype)
        else:
            values = raw if view.dtype.kind in ("int", "uint", "bool") else self.load(view).reshape(view.shape)
        self._printer(f"{visible(prefix)}{np.array2string(values, threshold=64, precision=6)}\n")

    # --- other cores and ranks

    def barrier(self) -> None:
        self._together(("barrier",), None)

    def exchange(self, key: int, dst: View, src: View, to: int, source: int) -> None:
        storage = self.memory.storage(src)
        precise = self._precise(storage, src)
        bits = np.array(self._read(storage, src)).reshape(src.shape)
        sent = Parcel(self.core, to, source, src.dtype, bits, None if precise is None else precise.copy())
        taken = sent
        if to != self.core or source != self.core:
            check_route(sent, sent)
            taken = self._together(("sendrecv", key), sent)
            check_route(sent, taken)
        check_contents(taken, dst)
        self._write(dst, taken.bits, taken.precise)

    def ranks(self) -> tuple[int, int]:
        return self._ranks.rank, self._ranks.size

    def together(self, members: Sequence[int], what: tuple[Any, ...], value: Any) -> list[Any]:
        meeting = Meeting(tuple(members), (*what, self.core), value, self._location)
        brought = self._ranks.meet(meeting)
        check_brought(meeting, brought)
        return brought

    def _together(self, key: Any, values: Any) -> Any:
        if self._meet is None:
            raise ExecutionError(
                "cores.alone",
                "the kernel waits for another core but was launched on one",
                fix="launch it as kernel[2](...)",
            )
        return self._meet(key, values, self._location)
