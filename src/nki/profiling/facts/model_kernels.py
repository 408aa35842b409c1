"""The kernels of a model and the modules that they compute, as tables: each chain of modules and each kernel once."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.origin import ModuleCall
from nki.profiling.table import Table, from_rows
from nki.spec.model_kernels import CoreKernels, shares

_WEIGHTS = ("work", "reads", "writes")
"""What a kernel's time, and its bytes from and to HBM, are divided by: fields of its parts."""


class ModelKernels:
    """Numbers for the kernels of all cores and for modules; equal chains of modules have equal numbers."""

    def __init__(self, cores: Sequence[CoreKernels]) -> None:
        self._cores = cores
        self._modules: dict[tuple[ModuleCall, int], int] = {}
        self._first = [sum(map(len, cores[:core])) for core in range(len(cores))]

    def numbers(self, core: int, count: int) -> list[int]:
        """The kernel of each instruction of a core, -1 where nothing is known of it."""
        found = [-1] * count
        for number, call in enumerate(self._cores[core] if core < len(self._cores) else (), self._first_of(core)):
            found[call.first : call.after] = [number] * (call.after - call.first)
        return found

    def tables(self) -> dict[str, Table]:
        """The tables ``kernels`` and ``modules``."""
        rows: list[tuple[object, ...]] = []
        for core, kernels in enumerate(self._cores):
            for number, call in enumerate(kernels, self._first_of(core)):
                divided = [shares([getattr(part, name) for part in call.parts]) for name in _WEIGHTS]
                for part, *sizes in zip(call.parts, *divided, strict=True):
                    module = self._module(part.origin.modules)
                    rows.append((core, number, call.name, module, part.origin.operation, *sizes))
                if not call.parts:
                    rows.append((core, number, call.name, -1, "", *(1.0 for _ in _WEIGHTS)))
        modules = [(number, path, kind, parent) for ((path, kind), parent), number in self._modules.items()]
        return {"kernels": from_rows("kernels", rows), "modules": from_rows("modules", modules)}

    def _first_of(self, core: int) -> int:
        return self._first[core] if core < len(self._first) else 0

    def _module(self, modules: Sequence[ModuleCall]) -> int:
        number = -1
        for module in modules:
            number = self._modules.setdefault((module, number), len(self._modules))
        return number
