"""Moving operands that several products share: packed once, for all of them."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass

from nki.native.operand_layout import Place
from nki.native.records.forms import Native
from nki.native.records.move_records import at_panels, moving_key, panel_bytes
from nki.native.records.moves import Product

_MOST_BYTES = 32 << 20
"""Bytes of all packed operands of a plan: more would no longer be in the caches when it is needed."""

_Memory = tuple[int, int]


@dataclass(slots=True)
class _Packed:
    """A moving operand.

    Attributes:
        at: word of the plan where the record begins that packs it.
        offset: where its panels are; -1 as long as only one product has it.
    """

    at: int
    offset: int = -1


class Panels:
    """Follows the records of a plan in the order in which they are executed.

    Every thread packs what it needs by itself, so that none waits: two that pack the same operand write the same bytes.

    Args:
        aliases: base addresses of arguments that may be the same memory.

    Attributes:
        bytes: of the memory for the panels.
    """

    def __init__(self, aliases: frozenset[int]) -> None:
        self.bytes = 0
        self._aliases = aliases
        self._known: dict[_Memory, dict[tuple[int, ...], _Packed]] = {}

    def forget(self) -> None:
        """What follows may be executed without what came before, or after something that is not a record."""
        self._known.clear()

    def recorded(
        self, native: Native, record: MutableSequence[int], places: Sequence[Place], words: MutableSequence[int]
    ) -> None:
        """Note a record that goes to the end of the words of the plan; notes in it, and in those, who packs."""
        if isinstance(native.move, Product) and not native.move.quadrants:
            self._product(record, self._memory(places[2]), words)
        self.written(place for source, place in zip(native.sources, places, strict=True) if source.writes)

    def written(self, places: Iterable[Place]) -> None:
        """Note what something writes."""
        if self._known:
            for place in places:
                self._known.pop(self._memory(place), None)

    def _memory(self, place: Place) -> _Memory:
        return (-1, 0) if place.base in self._aliases else (place.base, place.memory)

    def _product(self, record: MutableSequence[int], memory: _Memory, words: MutableSequence[int]) -> None:
        known = self._known.setdefault(memory, {})
        key = moving_key(record)
        packed = known.get(key)
        if packed is None:
            known[key] = _Packed(len(words))
            return
        if packed.offset < 0:
            size = panel_bytes(record)
            if self.bytes + size > _MOST_BYTES:
                return
            packed.offset, self.bytes = self.bytes, self.bytes + size
            first = words[packed.at : packed.at + len(record)]
            words[packed.at : packed.at + len(record)] = at_panels(first, packed.offset, there=False)
        at_panels(record, packed.offset, there=True)
