"""`ReplicaGroup`: which ranks take part in a collective operation together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.errors import ArgumentError
from nki.core.tensor import NKIObject


@dataclass
class ReplicaGroup(NKIObject):
    """Lists of ranks; the ranks of one list take part in a collective together, and the lists do not overlap.

    Attributes:
        groups: for example ``[[0, 1], [2, 3]]``.
    """

    groups: Sequence[Sequence[int]]

    def ranks(self) -> tuple[tuple[int, ...], ...]:
        """The lists as tuples.

        Raises:
            ArgumentError: they are not lists of ranks (``collective.group``).
        """
        lists = self.groups
        if not _is_list(lists) or not all(_is_list(ranks) and all(map(_is_rank, ranks)) for ranks in lists):
            raise ArgumentError(
                "collective.group",
                f"ReplicaGroup({lists!r})"[:160],
                rule="a replica group is a list of lists of ranks, and a rank is an int from 0 on",
                source="nki/api/nki/collectives ReplicaGroup",
                fix="write ReplicaGroup([[0, 1, 2, 3]])",
            )
        return tuple(tuple(int(rank) for rank in ranks) for ranks in lists)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0


def _is_rank(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0
