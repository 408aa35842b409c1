"""The hash of a graph of values: one pass over everything that is reached, each object once."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from types import CodeType, EllipsisType, MemberDescriptorType, ModuleType, NoneType
from typing import Any

from nki.frontend.dependencies.code_objects import encoded
from nki.frontend.dependencies.identity_checks import MISSING, Probes, slot_value

ATOMS = frozenset({NoneType, bool, int, float, complex, str, bytes, EllipsisType, slice, CodeType})
"""Types whose values are written where they are met; they cannot change."""


MOST_OBJECTS = 10_000
"""Objects that are compared; with more, tracing anew is cheaper."""


class DigestWriter:
    """Writes values into a hash; objects that can be shared or changed are numbered and written later, once.

    So cycles are no problem, deep graphs take no deep stack, and equal graphs give equal hashes in every process.

    Attributes:
        probes: where each value was found.
        reasons: why this cannot be compared by value; empty if it can.
        modules: modules that were met as values, so that any attribute of theirs may be read.
        paths: labels of paths that can be opened, and not only taken apart.
    """

    def __init__(self) -> None:
        self.probes = Probes()
        self.reasons: list[str] = []
        self.modules: dict[str, ModuleType] = {}
        self.paths: list[str] = []
        self._hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []
        self._pending: deque[tuple[int, str]] = deque()

    def text(self, *texts: str) -> None:
        """Structure: what the next values are."""
        for each in texts:
            data = each.encode("utf-8", "surrogatepass")
            # With its length, because otherwise "ab", "c" would hash like "a", "bc".
            self._hash.update(b"%d;" % len(data) + data)

    def constant(self, value: Any) -> None:
        """A value that `encoded` knows."""
        self._hash.update(encoded(value))

    def value(self, value: Any, label: str) -> None:
        """Any value; `label` says in a reason what it is."""
        kind = type(value)
        if kind in ATOMS:
            self._atom(value, label)
        elif kind is tuple:
            self.text("tuple", str(len(value)))
            for item in value:
                self.value(item, label)
        elif kind is ModuleType:
            self.module(value, label)
        elif value is MISSING:
            self.text("missing")
        else:
            self.text("object", str(self._number(value, label)))

    def module(self, module: ModuleType, label: str) -> None:
        """A module as a value counts by its name; what is read from it is written when all names are known."""
        self.text("module", module.__name__)
        self.modules.setdefault(module.__name__, module)

    def mapping(self, mapping: Mapping[Any, Any], label: str, leave_out: frozenset[str] = frozenset()) -> None:
        """Keys and values in order."""
        self.probes.mapping(mapping)
        kept = [(key, value) for key, value in mapping.items() if key not in leave_out]
        self.text("mapping", str(len(kept)))
        for key, value in kept:
            self.value(key, f"a key of {label}")
            self.value(value, f"{label}.{key}" if isinstance(key, str) else f"an item of {label}")

    def slot(self, descriptor: MemberDescriptorType, owner: Any, label: str) -> None:
        """One slot of an object."""
        self.probes.slot(descriptor, owner)
        self.text("slot", descriptor.__name__)
        self.value(slot_value(descriptor, owner), f"{label}.{descriptor.__name__}")

    def refuse(self, reason: str) -> None:
        """Note why the values cannot be compared."""
        if reason not in self.reasons:
            self.reasons.append(reason)

    def drain(self, write: Callable[[Any, str], None]) -> None:
        """Write the contents of everything that was numbered, and of what turns up meanwhile.

        Once something cannot be compared nothing else has to be, and a kernel that reaches too much is not worth it.
        """
        while self._pending and not self.reasons:
            number, label = self._pending.popleft()
            if number >= MOST_OBJECTS:
                self.refuse(f"{label} is one of more than {MOST_OBJECTS} objects that the kernel may read")
            self.text("content", str(number))
            write(self._met[number], label)

    def digest(self) -> str:
        """The digest of everything that was written so far."""
        return self._hash.hexdigest()

    def _number(self, value: Any, label: str) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            # `_met` keeps the object alive, so that no other one gets its identity while this goes on.
            number = self._numbers[id(value)] = len(self._met)
            self._met.append(value)
            self._pending.append((number, label))
        return number

    def _atom(self, value: Any, label: str) -> None:
        try:
            self.constant(value)
        except TypeError as error:  # a slice of something that is no constant
            self.refuse(f"{label}: {error}")
