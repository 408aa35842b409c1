"""Columns of a plan on disk, made into objects when somebody asks for them: a call that goes well never does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nki.native.plan.steps import Recorded, recorded
from nki.native.plan.tile_versions import Renamed
from nki.spec.program import Program


class Later(Mapping[int, Any]):
    """Tuples by a number; made of a column when somebody asks."""

    def __init__(self, column: np.ndarray, kind: Any) -> None:
        self._rows = column.reshape(-1, 1 + len(kind._fields))
        self._kind = kind
        self._made: dict[int, Any] | None = None

    def _known(self) -> dict[int, Any]:
        if self._made is None:
            self._made = {key: self._kind(*fields) for key, *fields in self._rows.tolist()}
        return self._made

    def __getitem__(self, key: int) -> Any:
        return self._known()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._rows)


class IssuedAt(Mapping[int, Recorded]):
    """The instruction or loop of each word; the program is decoded when somebody asks."""

    def __init__(self, at: np.ndarray, item: np.ndarray, program: Program) -> None:
        self._at = at
        self._item = item
        self._program = program
        self._made: dict[int, Recorded] | None = None

    def _known(self) -> dict[int, Recorded]:
        if self._made is None:
            items = list(recorded(self._program.body))
            numbers = zip(self._at.tolist(), self._item.tolist(), strict=True)
            self._made = {at: items[number] for at, number in numbers}
        return self._made

    def __getitem__(self, at: int) -> Recorded:
        return self._known()[at]

    def __iter__(self) -> Iterator[int]:
        return iter(self._at.tolist())

    def __len__(self) -> int:
        return len(self._at)


class RenamedOperands(Sequence[Renamed]):
    """Operands that name versions of tiles; the program is decoded when somebody asks."""

    def __init__(self, column: np.ndarray, program: Program) -> None:
        self._rows = column.reshape(-1, len(Renamed._fields))
        self._program = program

    def _known(self) -> list[Renamed]:
        items = list(recorded(self._program.body)) if len(self._rows) else []
        return [Renamed(items[number], bool(writes), *ids) for number, writes, *ids in self._rows.tolist()]

    def __getitem__(self, at: Any) -> Any:
        return self._known()[at]

    def __iter__(self) -> Iterator[Renamed]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._rows)
