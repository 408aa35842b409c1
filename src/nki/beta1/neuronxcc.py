"""``neuronxcc.nki.typing`` where no neuronx-cc is installed: kernel libraries of today still annotate with it.

nki-library 2.29 imports it next to `nki` (core/router_topk). Nothing else of ``neuronxcc`` is given: kernels below
``neuronxcc.nki`` are those of NKI 0.1, which have to be migrated.

Frameworks and tools ask whether there is a compiler by ``find_spec("neuronxcc")``, ``find_spec("neuronxcc.nki")``,
``import neuronxcc`` or ``import neuronxcc.nki`` (as AWS's nkipy and benchmarks of NKI kernels do). All of these have to
fail. So what decides is the import statement: only one that names ``neuronxcc.nki.typing`` gets the module, and the
packages around it are gone from ``sys.modules`` as soon as that statement has taken what it wants.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType

from nki import typing
from nki.core.errors import RemovedModuleError

_TOP, _OLD, _TYPING = "neuronxcc", "neuronxcc.nki", "neuronxcc.nki.typing"
_MODULES = (_TOP, _OLD, _TYPING)
_NAMES = ["TensorAnnotation", "mutable_tensor", "tensor"]
_MACHINERY = ("importlib._bootstrap", "importlib._bootstrap_external", __name__)


class TypingFinder(MetaPathFinder, Loader):
    """The last finder on ``sys.meta_path``: an installed neuronx-cc is found before it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The three modules, for a statement that imports the last of them.

        Raises:
            RemovedModuleError: the statement imports ``neuronxcc.nki``, or something else below it (``name.removed``).
        """
        if fullname.partition(".")[0] != _TOP:
            return None
        asked = _imported(_asking(sys._getframe(1)))
        if asked == {_TYPING}:
            return ModuleSpec(fullname, self, origin="nki", is_package=fullname != _TYPING)
        gone = sorted(name for name in asked - {_TYPING} if f"{name}.".startswith(f"{_OLD}."))
        if gone:
            raise _gone(gone[0])
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Served(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its names."""
        if module.__name__ == _TYPING:
            vars(module).update({name: getattr(typing, name) for name in _NAMES}, __all__=_NAMES)


class _Served(ModuleType):
    """A module that Python forgets when something is taken out of it."""

    def __getattribute__(self, name: str) -> object:
        found: object = super().__getattribute__(name)
        if name in _NAMES or name == "typing":
            for module in _MODULES:
                if isinstance(sys.modules.get(module), _Served):
                    del sys.modules[module]
        return found


def _asking(frame: FrameType | None) -> FrameType | None:
    """The first frame that is not Python's own import of modules."""
    while frame is not None and frame.f_globals.get("__name__") in _MACHINERY:
        frame = frame.f_back
    return frame


def _imported(frame: FrameType | None) -> set[str]:
    """What the import statement names that a frame executes: a module, or what is taken from one of the packages."""
    before: list[dis.Instruction] = []  # up to the one that is executed
    for instruction in dis.get_instructions(frame.f_code) if frame is not None else ():
        if instruction.offset > frame.f_lasti:  # type: ignore[union-attr]
            break
        if instruction.opname != "EXTENDED_ARG":
            before.append(instruction)
    if not before or before[-1].opname != "IMPORT_NAME":
        return set()
    module, names = before[-1].argval, before[-2].argval  # `import module` has None for the names
    return {f"{module}.{name}" for name in names} if names and module in (_TOP, _OLD) else {module}


def _gone(name: str) -> RemovedModuleError:
    return RemovedModuleError(
        "name.removed",
        f"{name} does not exist: neuronx-cc is not installed",
        rule="neuronxcc.nki was the namespace of NKI 0.1",
        source="nki/migration/index.rst",
        fix="`nki migrate FILE` rewrites it for today's NKI; to run it as it is, install open-nki-neuronxcc, or write "
        "`import nki.beta1 as nki`",
    )


def install() -> None:
    """Let imports find the module; once is enough."""
    if not any(isinstance(finder, TypingFinder) for finder in sys.meta_path):
        sys.meta_path.append(TypingFinder())
