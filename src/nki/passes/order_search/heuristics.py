"""The heuristics under which the list scheduler makes orders, before these have addresses.

No single one is the best for all programs. The further instructions run ahead, the more is live at once, and the
sooner bytes that were just in use are used again; so windows of several sizes are tried, each of them as urgency and as
the kernel has it. PSUM is so small that an order has to know of it, or no address can be found for it.

A row is in the table because some kernel of `benchmarks/kernels` takes longer without it, on one of the targets.
``python scripts/heuristics_table.py --targets trn1,trn2,trn3`` prints which ones and by how much; comments name some.
"""

from __future__ import annotations

from typing import NamedTuple

from nki.passes.scheduling.list_schedule import Heuristic

PATIENT = Heuristic(patience=3000.0)
"""Heuristic for programs with several activation tables: its patience is the ns of two loads of a table, and of what
they put off."""


class Heuristics(NamedTuple):
    """What is tried, in this order, until the search has spent enough.

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
        # The larger a program, the fewer rows are reached: those come first that know of PSUM, where most is to gain.
        # Far ahead, but not too far for the operands of sums: attention over 2,048 positions, +2.2 % without it.
        Heuristic(window=400, spare=1),
        # As far ahead as PSUM allows: perceptrons, mlp 512x2048, +1.5 %.
        Heuristic(spare=1),
        # The window that suits most kernels: 16 of 127 are best under it, softmax by +0.1 %.
        Heuristic(window=64),
        # Results leave early, while loads run ahead: rope 1024x2048, +2.0 % (trn1).
        Heuristic(window=112, written=True),
        # Two tables for each tile, which are not to be loaded in turns: softmax of tanh, +1.7 %.
        PATIENT,
        # The same with less running ahead: softmax of tanh, +2.3 % (trn1).
        PATIENT._replace(window=32),
        # Room for several tiles of many instructions: attention over 1,024 positions, +6.3 %, and cumsum, +2.5 %.
        Heuristic(window=128),
        # For large tiles, of which a larger window takes in too many: softmax, cumsum and rmsnorm, +0.3 % to +1.1 %.
        Heuristic(window=48),
        # The same: products of 512x512, +4.0 % (trn1), and layernorm, +1.0 %.
        Heuristic(window=24),
        # Little runs ahead, as in an unrolled loop of which each trip is a few instructions: loop-layer, +6.2 %.
        Heuristic(window=16),
        # Between those: rmsnorm 4096x2048, +1.6 %, and layernorm, +1.8 % (trn3).
        Heuristic(window=32),
        # Results leave early from few tiles: transposed products, +0.7 % (trn3).
        Heuristic(window=64, written=True),
    ),
    one_with_sums=(
        # Attention over all of 2,048 positions, +5.3 %.
        Heuristic(window=400, spare=1),
        # Perceptrons, mlp 1024x2048, +40 %.
        Heuristic(spare=1),
    ),
    # rope 2048x2048, +21 %.
    one_without=(Heuristic(window=112, written=True),),
)
"""What the compiler tries."""
