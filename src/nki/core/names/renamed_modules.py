"""Modules that have another name since their old one became that of a function: the old imports work, with a note.

``nki.jit`` and ``nki.profile`` are functions. As long as modules had these names, ``import nki.jit as j`` gave the
function, and ``import nki.profile.record as r`` failed.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_MODULES = {"nki.jit": "nki.kernel"}
_PACKAGES = {"nki.profile": "nki.profiling"}


class RenamedFinder(MetaPathFinder, Loader):
    """The last finder on ``sys.meta_path``: modules of an old package are those of the new one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        old, _, name = fullname.rpartition(".")
        new = _PACKAGES.get(old)
        if new is None or PathFinder.find_spec(f"{new}.{name}", import_module(new).__path__) is None:
            return None  # only files count: a stand-in in `sys.modules` may have no spec
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Put the module with the new name in the place of the old one; Python takes it from there."""
        old, _, name = module.__name__.rpartition(".")
        new = f"{_PACKAGES[old]}.{name}"
        _note(module.__name__, new)
        sys.modules[module.__name__] = found = import_module(new)
        # `import nki.profile.record as r` asks the function, which is what nki.profile is.
        setattr(getattr(sys.modules["nki"], old.removeprefix("nki.")), name, found)


def install() -> None:
    """Let imports find the old names; once is enough.

    They are in ``sys.modules`` from the start: a module that is imported later would replace the function in `nki`.
    """
    if any(isinstance(finder, RenamedFinder) for finder in sys.meta_path):
        return
    sys.meta_path.append(RenamedFinder())
    for old, new in {**_MODULES, **_PACKAGES}.items():
        module = ModuleType(old, f"The old name of `{new}`.")
        module.__spec__ = ModuleSpec(old, None, is_package=old in _PACKAGES)
        vars(module)["__getattr__"] = _reader(old, new)
        if old in _PACKAGES:
            module.__path__ = []
        sys.modules[old] = module


def _reader(old: str, new: str) -> Callable[[str], object]:
    def __getattr__(name: str) -> object:  # noqa: N807 - the module's
        # Python asks for names with underscores of every module; modules are found, and told of, by the finder.
        found: object = None if name.startswith("__") else getattr(import_module(new), name)
        if found is None or isinstance(found, ModuleType):
            raise AttributeError(f"module {old!r} has no attribute {name!r}", name=name)
        _note(f"{old}.{name}", f"{new}.{name}")
        return found

    return __getattr__


def _note(old: str, new: str) -> None:
    """A DeprecationWarning at the import."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
