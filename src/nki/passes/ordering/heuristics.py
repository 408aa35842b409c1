"""The heuristics under which the list scheduler makes orders, before these have addresses.

No single one is the best for all programs. The further instructions run ahead, the more is live at once, and the
sooner memory that was just in use is used again; so windows of several sizes are tried.
"""

from __future__ import annotations

from typing import NamedTuple

from nki.passes.scheduling.list_schedule import Heuristic

PATIENT = Heuristic(patience=3000.0)
"""For programs with several activation tables: the ns of two loads of a table, and of what they put off."""


class Heuristics(NamedTuple):
    """What is tried, the most promising first.

    Attributes:
        several: for programs that are small enough for several orders.
        one_with_sums: for larger ones that use PSUM: the one of them that promises most.
        one_without: the same for larger ones that do not.
    """

    several: tuple[Heuristic, ...]
    one_with_sums: tuple[Heuristic, ...]
    one_without: tuple[Heuristic, ...]


HEURISTICS = Heuristics(
    several=(
        Heuristic(window=400, spare=1),
        Heuristic(spare=1),
        Heuristic(window=64),
        Heuristic(window=112, written=True),
        Heuristic(),
        PATIENT,
        PATIENT._replace(window=16),
        Heuristic(window=128, written=True),
        Heuristic(window=128),
        Heuristic(window=24),
        Heuristic(window=48),
        Heuristic(written=True),
        Heuristic(window=16),
        Heuristic(window=32),
        PATIENT._replace(window=128),
        PATIENT._replace(window=24),
        PATIENT._replace(window=32),
        Heuristic(window=64, written=True),
        Heuristic(window=24, written=True),
        Heuristic(window=32, written=True),
    ),
    one_with_sums=(Heuristic(window=400, spare=1), Heuristic(spare=1)),
    one_without=(Heuristic(window=112, written=True),),
)
"""What the compiler tries."""
