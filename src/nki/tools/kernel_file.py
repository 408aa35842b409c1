"""FILE::KERNEL: the user's file, imported, and the kernel in it."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from nki.beta1.front_end import Beta1FrontEnd
from nki.beta1.kernel import Beta1Kernel, kernel_of
from nki.beta1.served import serve
from nki.beta1.tracing.grid import nc
from nki.core.errors import RemovedModuleError, UsageError
from nki.core.source import UNKNOWN
from nki.driver.launch import Launch
from nki.kernel import Kernel
from nki.tools.suggestions.nearest_word import nearest
from nki.tools.user_code import import_errors


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A kernel and where it came from."""

    path: Path
    name: str
    launch: Launch


def load_kernel(text: str) -> KernelFile:
    """The kernel that ``FILE::NAME`` names, or the only kernel of ``FILE``.

    Raises:
        UsageError: no such file, no such kernel, more than one to choose from, or the file cannot be imported.
    """
    file, _, name = text.partition("::")
    path = Path(file)
    if not path.is_file():
        raise _usage(
            "kernel.file",
            f"there is no file {file!r}" if not path.is_dir() else f"{file!r} is a directory",
            _file_fix(path, name),
        )
    names = vars(import_file(path))
    found = _named(names, name, file) if name else _only(names, file)
    return KernelFile(path.resolve(), found, launch_of(names[found], f"{file}::{found}"))


def launch_of(value: Any, shown: str) -> Launch:
    """How to launch what the user named: a kernel as decorated, a plain function as it is."""
    if isinstance(value, Kernel):
        return value.launch()
    if isinstance(value, FunctionType):
        return kernel_of(value).launch() if _has_its_modules(value) else Launch(value)
    raise _usage(
        "kernel.kind",
        f"{shown} is a {type(value).__name__}",
        "name a function, or a function decorated with @nki.jit",
    )


def is_of_the_first_nki(launch: Launch) -> bool:
    """Whether a kernel is written in that language."""
    return isinstance(launch.front_end, Beta1FrontEnd)


def on_grid(launch: Launch, lnc: int | None, grid: tuple[int | str, ...]) -> Launch:
    """The launch that a command line asks for.

    Args:
        lnc: cores, as ``kernel[lnc]``; of the first NKI ``kernel[nl.nc(lnc)]``. None if nothing was said.
        grid: of kernels of the first NKI, such as (4, "nc2"); empty if nothing was said.

    Raises:
        UsageError: a grid of a kernel of today, or both of lnc and grid (``command.grid``).
    """
    if not grid:
        if lnc is None or not is_of_the_first_nki(launch):
            return launch if lnc is None else replace(launch, lnc=lnc)
        return Beta1Kernel(launch)[nc(lnc)].launch()
    shown = ",".join(map(str, grid))
    if not is_of_the_first_nki(launch):
        raise _grid_refused(f"--grid {shown} with {launch.name}, a kernel of today's NKI", "write --lnc 2 for cores")
    if lnc is not None:
        raise _grid_refused(f"--grid {shown} and --lnc {lnc}", f"write the cores into the grid: --grid {shown},nc{lnc}")
    return Beta1Kernel(launch)[tuple(nc(int(axis[2:])) if isinstance(axis, str) else axis for axis in grid)].launch()


def _grid_refused(message: str, fix: str) -> UsageError:
    rule = "grids are of the first NKI; a kernel of today is launched on a number of cores"
    return UsageError("command.grid", message, rule=rule, fix=fix, location=UNKNOWN)


def _has_its_modules(function: FunctionType) -> bool:
    """Whether names of its module are modules of that language."""
    return any(
        isinstance(value, ModuleType) and value.__name__.startswith("nki.beta1")
        for value in function.__globals__.values()
    )


def import_file(path: Path) -> ModuleType:
    """Import a file as Python would from its own directory; in a package, as part of that package."""
    path = path.resolve()
    root, name = _module_name(path)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    with import_errors(str(path)):
        try:
            return _import(name, path)
        except RemovedModuleError:  # it is for the first NKI, or something that it imports is
            serve()
            return _import(name, path)


def _import(name: str, path: Path) -> ModuleType:
    return importlib.import_module(name) if "." in name else _import_as(name, path)


def _import_as(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _usage("kernel.file", f"{str(path)!r} is no Python file", "name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _module_name(path: Path) -> tuple[Path, str]:
    """The directory that must be on the path, and the name that the file has from there."""
    parts, root = [path.stem], path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if len(parts) == 1 and (path.stem in sys.modules or path.stem in sys.stdlib_module_names):
        return root, f"_kernels_of_{path.stem}"
    return root, ".".join(parts)


def _file_fix(path: Path, name: str) -> str:
    if path.is_dir():
        files = sorted(path.glob("*.py"))
        return f"write {files[0]}" if len(files) == 1 else f"name a file in it: {path}/FILE.py::KERNEL"
    if path.with_name(f"{path.name}.py").is_file():
        return f"write {path}.py{'::' if name else ''}{name}"
    if not name:
        for separator in (":", "."):  # FILE:KERNEL, and MODULE.KERNEL
            front, _, last = str(path).rpartition(separator)
            file = next((each for each in (front, f"{front}.py") if front and Path(each).is_file()), "")
            if file and last.isidentifier() and not nearest(last, ("py",)):
                return f"write {file}::{last}"
    folder = path.parent if path.parent.is_dir() else Path()
    close = difflib.get_close_matches(path.name, [file.name for file in folder.glob("*.py")], n=1)
    if close:
        return f"write {path.with_name(close[0])}{'::' if name else ''}{name}"
    return "write FILE::KERNEL, for example kernels.py::softmax"


def _named(names: Mapping[str, Any], name: str, file: str) -> str:
    if name in names:
        return name
    kernels = _kernels(names) or _functions(names)
    close = difflib.get_close_matches(name, kernels, n=1)
    raise _usage(
        "kernel.name", f"{file} has no {name!r}", f"use {file}::{close[0]}" if close else _listed(kernels, file)
    )


def _only(names: Mapping[str, Any], file: str) -> str:
    kernels = _kernels(names)
    if len(kernels) == 1:
        return kernels[0]
    problem = f"{file} defines {len(kernels) or 'no'} kernels" + (f": {', '.join(kernels)}" if kernels else "")
    raise _usage("kernel.name", problem, _listed(kernels or _functions(names), file))


def _listed(kernels: list[str], file: str) -> str:
    if not kernels:
        return "define a function with @nki.jit in it"
    return f"name one: {', '.join(f'{file}::{name}' for name in kernels[:8])}"


def _kernels(names: Mapping[str, Any]) -> list[str]:
    """Kernels that are defined in the file, not imported into it; each once, by the name of its function if it has it.

    Other kernels of the same function differ in their settings, so none stands for the others; without one of that name
    all are told.
    """
    by_function: dict[Any, dict[int, str]] = {}
    for name, value in names.items():
        if isinstance(value, Kernel) and value.func.__module__ == names["__name__"]:
            own = names.get(value.func.__name__)
            defined = isinstance(own, Kernel) and own.func is value.func
            found = by_function.setdefault(value.func, {})
            found.setdefault(0 if defined else id(value), value.func.__name__ if defined else name)
    return [name for found in by_function.values() for name in found.values()]


def _functions(names: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in names.items()
        if isinstance(value, FunctionType) and value.__module__ == names["__name__"] and not name.startswith("_")
    ]


def _usage(code: str, message: str, fix: str) -> UsageError:
    return UsageError(code, message, fix=fix, rule="a kernel is named FILE::KERNEL", location=UNKNOWN)
