"""``neuronxcc.nki.kernels`` and its private neighbours: kernels that a library of kernels serves under those names.

A distribution names in the group ``nki.beta1.kernels`` a dictionary: modules below ``neuronxcc.nki``, and which of its
own modules stand for them. What such a module has in ``__all__`` is served: functions of today's NKI as kernels, which
are launched as kernels of the first NKI are, and everything else as it is. A function that takes `grid` by name gets
the sizes of the grid that it is launched on. Functions that are no kernels are named in ``PLAIN``. ``NOT_SERVED`` has
names that models import from there and that the library does not serve, each with what takes its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from inspect import signature
from types import FunctionType, ModuleType
from typing import Any

from nki.beta1.errors import refused
from nki.beta1.front_end import Beta1FrontEnd, in_another_kernel
from nki.beta1.kernel import FRONT_ENDS, Beta1Kernel
from nki.beta1.tracing.grid import cores_of
from nki.core.errors import RemovedImportError, RemovedModuleError
from nki.core.locks import lock
from nki.driver.launch import Launch
from nki.frontend.foreign import called
from nki.frontend.host import HostArray
from nki.frontend.protocol import Place
from nki.frontend.trace import Tracer
from nki.frontend.values import Arguments, Parameters, SeeArray, bind

GROUP = "nki.beta1.kernels"
"""The group of entry points; the name of one is of no matter."""

_ABOVE = "neuronxcc.nki."
_SOURCE = "nki/api/nki.kernels.rst (NKI 0.1)"
PACKAGES = ("kernels", "_private_kernels", "_pre_prod_kernels")
"""What the compiler had below ``neuronxcc.nki`` beside the language."""


@dataclass(frozen=True, slots=True)
class LibraryFrontEnd(Beta1FrontEnd):
    """Functions of today's NKI, launched on grids of the first one; tensors that they write are their outputs."""

    def bind(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], see: SeeArray
    ) -> Arguments:
        given = self._with_grid(function, kwargs)
        return Arguments(bind(function, args, given, function.__name__), Parameters(function), see)

    def trace(self, function: Callable[..., Any], tracer: Tracer, arguments: Arguments, place: Place) -> Any:
        def make(host: HostArray, name: str) -> Any:
            return tracer.input(host.array.shape, host.dtype, name, lambda buffer: place(buffer, host))

        args, kwargs = arguments.build(make)
        return tracer.run(function, args, kwargs, self.spell)

    def inside(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A part of the kernel that calls it. Raises Beta1Error for a grid."""
        in_another_kernel(function.__name__, self.grid)
        given = self._with_grid(function, kwargs)
        bind(function, args, given, function.__name__)
        return called(function, args, given)

    def _with_grid(self, function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        if "grid" in signature(function).parameters:
            return {**kwargs, "grid": tuple(axis.size for axis in self.grid)}
        if any(axis.serial > 1 for axis in self.grid):
            sizes = ", ".join(str(axis.size) for axis in self.grid)
            raise refused(
                "grid",
                f"{function.__name__} is launched on the grid [{sizes}]",
                f"write {function.__name__}(...), or {function.__name__}[nl.nc({cores_of(self.grid)})](...) for cores",
                rule="this kernel computes all of its result in one program, on as many cores as the grid has",
            )
        return kwargs


class LibraryFinder(MetaPathFinder, Loader):
    """Finds the modules that libraries serve."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A served module, or a package above one.

        Raises:
            RemovedModuleError: there is no such module, or no library (``name.removed``).
        """
        name = fullname.removeprefix(_ABOVE)
        if name == fullname or name.partition(".")[0] not in PACKAGES:
            return None
        known = _served(tuple(sys.path))
        package = any(each.startswith(f"{name}.") for each in known)
        if name not in known and not package:
            raise _missing(fullname, known)
        return ModuleSpec(fullname, self, origin=known.get(name), is_package=package)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Fill in what the library serves."""
        source = _served(tuple(sys.path)).get(module.__name__.removeprefix(_ABOVE))
        if source is None:
            return
        library = import_module(source)
        names, plain = list(library.__all__), getattr(library, "PLAIN", ())
        module.__doc__ = library.__doc__
        for name in names:
            value = getattr(library, name)
            setattr(module, name, _made(value) if isinstance(value, FunctionType) and name not in plain else value)
        vars(module).update(__all__=names, __getattr__=partial(_absent, module.__name__, library))


def _absent(module: str, library: ModuleType, name: str) -> Any:
    """Raise the error for a name that a served module does not have."""
    instead: Mapping[str, str] = getattr(library, "NOT_SERVED", {})
    if name not in instead:
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    raise RemovedImportError(
        "name.removed",
        f"{module}.{name} does not exist",
        rule=f"{library.__name__.partition('.')[0]} serves other kernels under their old names",
        source=_SOURCE,
        fix=instead[name],
    )


_FRONT_END = LibraryFrontEnd()
_LOCK = lock()
_KERNELS: dict[FunctionType, Beta1Kernel] = {}
"""Kernels of functions that are served: as many as libraries have."""


def _made(function: FunctionType) -> Beta1Kernel:
    """Each function one kernel, whatever names it is served under."""
    with _LOCK:
        FRONT_ENDS[function] = _FRONT_END
        return _KERNELS.setdefault(function, Beta1Kernel(Launch(function, front_end=_FRONT_END)))


@lru_cache(maxsize=4)  # reading what is installed takes milliseconds; a new sys.path asks again
def _served(path: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        found.update(entry.load() or {})
    return found


def _missing(name: str, known: Mapping[str, str]) -> RemovedModuleError:
    if not known:
        return RemovedModuleError(
            "name.removed",
            f"{name} does not exist: no library of kernels that serves it is installed",
            rule=f"distributions serve what was below {_ABOVE}kernels by entry points of the group {GROUP}",
            source=_SOURCE,
            fix="install open-nki-library",
        )
    return RemovedModuleError(
        "name.removed",
        f"{name} does not exist",
        rule="a library serves the modules that models import",
        source=_SOURCE,
        fix=f"import one of {', '.join(sorted(known))}",
    )


def install() -> None:
    """Let imports find what libraries serve; once is enough."""
    if not any(isinstance(finder, LibraryFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, LibraryFinder())
