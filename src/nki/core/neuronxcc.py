"""``neuronxcc.nki.typing`` where no neuronx-cc is installed: kernel libraries of today still annotate with it.

nki-library 2.29 imports it next to `nki` (core/router_topk). Nothing else of ``neuronxcc`` is given: kernels below
``neuronxcc.nki`` are those of NKI 0.1, which have to be migrated.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from nki.core.errors import RemovedError, RemovedImportError
from nki.core.removed import imported

_TYPING = "neuronxcc.nki.typing"
_MODULES = ("neuronxcc", "neuronxcc.nki", _TYPING)


class TypingFinder(MetaPathFinder, Loader):
    """The last finder on ``sys.meta_path``: an installed neuronx-cc is found before it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The three modules, and no other.

        Raises:
            RemovedImportError: for others below ``neuronxcc.nki``.
        """
        if fullname.startswith("neuronxcc.nki.") and fullname != _TYPING:
            raise _gone(RemovedImportError, fullname)
        if fullname not in _MODULES:
            return None
        return ModuleSpec(fullname, self, origin="nki", is_package=fullname != _TYPING)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its names; what the packages do not have is an error that says what to write."""
        if module.__name__ == _TYPING:
            names = vars(importlib.import_module("nki.typing"))
            vars(module).update({name: value for name, value in names.items() if not name.startswith("_")})
        else:
            vars(module)["__getattr__"] = _missing(module.__name__)


def _missing(module: str) -> Callable[[str], object]:
    def __getattr__(name: str) -> object:  # noqa: N807 - the module's
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        raise _gone(RemovedImportError if imported() else RemovedError, f"{module}.{name}")

    return __getattr__


def _gone(kind: type[RemovedError] | type[RemovedImportError], name: str) -> RemovedError | RemovedImportError:
    return kind(
        "name.removed",
        f"{name} does not exist: neuronx-cc is not installed",
        rule="neuronxcc.nki was the namespace of NKI 0.1",
        source="nki/migration/index.rst",
        fix="write `import nki`, and take the names from there",
    )


def install() -> None:
    """Let imports find the module; once is enough."""
    if not any(isinstance(finder, TypingFinder) for finder in sys.meta_path):
        sys.meta_path.append(TypingFinder())
