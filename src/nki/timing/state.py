"""What passes from segment to segment, and the reasons for which instructions wait."""

from __future__ import annotations

from typing import NamedTuple

from nki.timing.clock import ClockState

NONE, WAIT, UNIT, PORT, OPERAND, TABLE, CORE = range(7)
CAUSES = ("", "wait", "unit", "port", "operand", "table", "core")
"""What an instruction waited for last: nothing, a signal, a busy unit, a busy port, the result of an instruction in its
own queue, the loading of an activation table, or the other core."""


class SegmentState(NamedTuple):
    """What a segment leaves for the next one: the activation table and the clock of the Tensor engine."""

    table: str | None = None
    clock: ClockState = ClockState()
