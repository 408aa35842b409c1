"""Values that a body would have to hand on through Python, to its next trip or to what follows: they would be lost."""

from __future__ import annotations

import ast
from types import FrameType

from nki.core.source import Location
from nki.frontend.loops.names import MISSING, value_of
from nki.frontend.loops.statements import Statement, at_node
from nki.language.rebound import Containers, is_lost, lost
from nki.spec.sink import current_sink


class Carried:
    """What a loop's names held before its first trip."""

    def __init__(self, statement: Statement, frame: FrameType) -> None:
        self._statement = statement
        self._frame = frame
        self._before = {name: value_of(frame, name) for name in (*statement.risks, *statement.counters)}
        used = {node.id for node in ast.walk(statement.loop) if isinstance(node, ast.Name)}
        self._containers = Containers({name: value_of(frame, name) for name in sorted(used)})

    def check(self, where: Location) -> None:
        """Raise FrontendError "loop.carried", after a trip, for a name that was bound before and holds another value.

        A list, dictionary or set that the trip filled gets the warning "loop.filled".
        """
        self._containers.check(current_sink("loop"), where)
        for name, before in self._before.items():
            after = value_of(self._frame, name)
            if before is not MISSING and after is not MISSING and is_lost(before, after):
                node, when = self._place(name)
                raise lost(name, after, when, at_node(node, where))

    def _place(self, name: str) -> tuple[ast.AST, str]:
        if name in self._statement.risks:
            return self._statement.risks[name]
        return self._statement.counters[name], "in the next trip"
