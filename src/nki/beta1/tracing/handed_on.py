"""What the names of a loop of the device hand from trip to trip, and to what follows the loop.

The body is traced once, in which ``acc = nl.add(acc, x)`` gives the name another tile, and ``n = n + 1`` another
number. Such a name gets a tile, or a register, of its own before the first trip. At the end of each trip it takes what
the trip has made, and holds the tile of its own again.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import refused
from nki.beta1.tensors.scalar import Scalar
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import write
from nki.beta1.tracing.scalars import RunTimeFloat
from nki.core.shown import shown
from nki.core.source import Location
from nki.frontend.loops.names import MISSING, bind, value_of
from nki.frontend.loops.statements import Statement, at_node
from nki.language.rebound import is_lost


class HandedOn:
    """The names of a loop, from before its first trip."""

    def __init__(self, statement: Statement, frame: FrameType, where: Location) -> None:
        self._statement, self._frame, self._where = statement, frame, where
        self._own: dict[str, Any] = {}
        self._fixed = {name: value_of(frame, name) for name in (*statement.risks, *statement.counters)}
        self._containers = _containers(frame)
        for name, value in list(self._fixed.items()):
            own = self._own_of(name, value)
            if own is not None:
                self._own[name] = own
                del self._fixed[name]
        bind(frame, self._own)

    def _own_of(self, name: str, value: Any) -> Any:
        """A tile or number of its own; None for names that stay what they are."""
        if name not in self._frame.f_locals or name not in self._statement.risks:
            return None
        if type(value) is Scalar:
            register = nisa.register_alloc()
            nisa.register_move(register, value.const if value.known else value.register())
            return Scalar.of(register)
        if name not in self._statement.replaced:
            return None
        if isinstance(value, RunTimeFloat):
            return RunTimeFloat(Tensor.functions["copy"](value.tile))
        return Tensor.functions["copy"](value) if isinstance(value, Tensor) and value.on_chip else None

    def hand_on(self) -> None:
        """At the end of a trip, write what the names hold to what they held before the loop.

        Raises:
            Beta1Error: a name that cannot hand on what it holds ("beta1.local_variable_used_out_of_scope").
        """
        self._check_fixed()
        held = {name: value_of(self._frame, name) for name in self._own}
        changed = {name: value for name, value in held.items() if value is not self._own[name]}
        tiles = {name: self._tile(name, value) for name, value in changed.items() if type(value) is not Scalar}
        registers = {name: self._register(name, value) for name, value in changed.items() if type(value) is Scalar}
        for name, value in tiles.items():
            write(_tile_of(self._own[name]), value)
        for name, register in registers.items():
            nisa.register_move(self._own[name].register(), register)
        bind(self._frame, {name: self._own[name] for name in changed})

    def _tile(self, name: str, value: Any) -> Tensor:
        """The tile that a name hands on; a copy, if it is a part of one that another name writes to."""
        own, made = _tile_of(self._own[name]), _tile_of(value)
        alike = isinstance(made, Tensor) and isinstance(own, Tensor) and type(value) is type(self._own[name])
        if not alike or not made.on_chip or made.mask is not None:
            raise self._lost(name, value, "a tile takes a tile")
        if (made.shape, made.dtype, made.visible()) != (own.shape, own.dtype, own.visible()):
            raise self._lost(name, value, f"it held {own.describe()} before the loop")
        if any(made.memory is _tile_of(each).memory for each in self._own.values() if type(each) is not Scalar):
            return Tensor.functions["copy"](made)
        return made

    def _register(self, name: str, value: Scalar) -> Any:
        """The register that a name hands on; a copy, because that of another name is written to before."""
        if type(self._own[name]) is not Scalar:
            raise self._lost(name, value, "a tile takes a tile")
        if value.known:
            return value.const
        register = nisa.register_alloc()
        nisa.register_move(register, value.register())
        return register

    def _check_fixed(self) -> None:
        """Raise for a name, a list or a dictionary that holds something else after a trip, and cannot hand it on."""
        for name, before in self._fixed.items():
            after = value_of(self._frame, name)
            if before is not MISSING and after is not MISSING and is_replaced(before, after):
                raise self._lost(name, after, f"it held {_told(before)} before the loop")
        for name, (container, before) in self._containers.items():
            if [id(each) for each in _members(container)] != before:
                raise self._lost(name, container, "its members are others than before the trip")

    def _lost(self, name: str, value: Any, why: str) -> Exception:
        place = self._statement.risks.get(name)
        node = place[0] if place is not None else self._statement.counters.get(name)
        return not_handed_on(name, value, why, self._where if node is None else at_node(node, self._where))


def not_handed_on(name: str, value: Any, why: str, where: Location) -> Exception:
    """The error for a name that holds something at the end of a trip that the next one would not get."""
    if isinstance(value, Tensor):
        fix = f"update the existing tensor: {name}[...] = value"
    elif isinstance(value, list | dict):
        fix = "keep the tiles of all trips in one tensor, made before the loop: nl.ndarray((128, trips, 512), ...)"
    else:
        fix = f"count with {name} = nt.scalar(0) and {name} = {name} + 1, or in a tile"
    return refused(
        "local_variable_used_out_of_scope",
        f"`{name}` holds {_told(value)} at the end of a trip of a loop over a number of run time: {why}",
        fix,
        rule="the body is traced once; a name hands on a tile of one shape and dtype, or a number of run time",
        location=where,
    )


def _tile_of(value: Any) -> Any:
    return value.tile if isinstance(value, RunTimeFloat) else value


def _told(value: Any) -> str:
    return value.describe() if isinstance(value, Tensor) else shown(value)


def is_replaced(before: Any, after: Any) -> bool:
    """Whether a name holds something else than before, which makes a difference in the next trip."""
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return before.memory is not after.memory or before.access != after.access
    return is_lost(before, after)


def _containers(frame: FrameType) -> dict[str, tuple[Any, list[int]]]:
    """The lists and dictionaries of a function, and what is in them."""
    found = {name: value for name, value in frame.f_locals.items() if isinstance(value, list | dict)}
    return {name: (value, [id(each) for each in _members(value)]) for name, value in found.items()}


def _members(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)
