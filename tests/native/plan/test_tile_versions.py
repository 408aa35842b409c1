"""What an instruction writes depends on nothing but what it is declared to read, wherever its destination is."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import pytest

import nki
from nki.core.tensor import Buffer, MemoryRegion, whole
from nki.native.plan.tile_versions import Renamed, TileUse, overwrites, renamed
from nki.sim.machine import Machine
from nki.spec.program import Issued
from tests.isa.registry import Legal
from tests.isa.test_registry import ALL
from tests.support import environment, same_bits
from tests.together import together

LEGAL = [example for example in ALL if isinstance(example, Legal)]
_NEW = 1 << 40
"""An id that no buffer of an example has."""

_without_other_place = Machine.run


def tiles(issued: Issued) -> list[Buffer]:
    """The tensors in SBUF that an instruction overwrites, so that what they hold next may have another place."""
    uses: dict[int, list[TileUse]] = {}
    for name, view in issued.views():
        operand = issued.instruction.operands[name]
        uses.setdefault(view.buffer.id, []).append(TileUse(0, issued, view, operand.reads, operand.writes))
    found = [known[0].view.buffer for known in uses.values() if overwrites(known)]
    return [buffer for buffer in found if buffer.region is MemoryRegion.sbuf]


def in_another_place(machine: Machine, issued: Issued) -> None:
    """Execute an instruction with new tensors in place of those that it overwrites, and copy what is there then."""
    changed = tiles(issued)
    others = [replace(buffer, id=_NEW + i, address=None) for i, buffer in enumerate(changed)]
    storages = [machine.memory.allocate(other) for other in others]
    changes = [Renamed(issued, True, old.id, new.id) for old, new in zip(changed, others, strict=True)]
    _without_other_place(machine, renamed(changes).get(id(issued), issued))
    for storage, old in zip(storages, changed, strict=True):
        machine.copy(whole(old), whole(storage.buffer))


@together("example", LEGAL, by=lambda example: example.instruction)
def test_a_destination_may_have_another_place(example: Legal) -> None:
    made: Any = nki.simulate(nki.jit(example.kernel))
    made = made if example.lnc is None else made[example.lnc]
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=example.targets[-1], NKI_NATIVE="0"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = made(*copy.deepcopy(example.arguments()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Machine, "run", in_another_place)
            same_bits(wanted, made(*copy.deepcopy(example.arguments())))
