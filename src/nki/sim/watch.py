"""A machine that is watched: somebody sees every instruction before and after it is executed, and every tap."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from nki.core.errors import NkiError
from nki.core.source import Location
from nki.core.tensor import View, whole
from nki.sim.machine import Machine
from nki.sim.memory import shadow_of, strided
from nki.spec.program import Issued


class Watch(Protocol):
    """Who watches the machines of all cores, of which only one runs at any time."""

    def before(self, machine: Machine, issued: Issued) -> None:
        """The instruction is about to be executed."""

    def after(self, machine: Machine, issued: Issued) -> None:
        """The instruction was executed."""

    def tap(self, machine: Machine, name: str, view: View, location: Location) -> None:
        """The kernel named the values that a view has now."""


class WatchedMachine(Machine):
    """A machine that tells `watch` what it does; the other arguments are those of `Machine`."""

    def __init__(self, watch: Watch, *args: Any) -> None:
        super().__init__(*args)
        self._watch = watch

    def run(self, issued: Issued) -> None:
        try:
            self._watch.before(self, issued)
        except NkiError as error:
            error.location = issued.location
            raise
        super().run(issued)
        self._watch.after(self, issued)

    def tap(self, name: str, view: View, location: Location) -> None:
        self._watch.tap(self, name, view, location)


def observable(view: View) -> View:
    """The view itself; the whole tensor where the address is only known while the instruction runs."""
    return view if view.dynamic is None else whole(view.buffer)


def snapshot(machine: Machine, view: View) -> np.ndarray:
    """A copy of what a static view holds, unwritten elements included: float32 where such values are kept."""
    storage = machine.memory.storage(view)
    kept = shadow_of(storage, view)
    return np.array(strided(storage, view) if kept is None else kept)
