"""Which part of a model something belongs to: the modules around it, and the operation of the framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ModuleCall(NamedTuple):
    """A module of a model that was running: `path` as the framework writes it, `kind` its class.

    The model itself has the path "". Where a framework has names and no classes, as JAX's name stack, `kind` is "".
    """

    path: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in a model an operation was written.

    Attributes:
        modules: that were running, the outermost first; () for an operation outside of every module.
        operation: what the framework calls it, such as "aten.addmm".
    """

    modules: tuple[ModuleCall, ...] = ()
    operation: str = ""

    def within(self, outer: Origin) -> Origin:
        """This origin as seen from a call at `outer`: names that say nothing of the caller begin with its own."""
        around = outer.modules
        if not around or self.modules[: len(around)] == around:
            return self
        base = around[-1].path
        modules = tuple(ModuleCall(f"{base}/{path}" if base else path, kind) for path, kind in self.modules)
        return Origin((*around, *modules), self.operation)
