"""Native functions by name: from memory, from disk, or compiled."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from nki.core.errors import ExecutionError, UsageError
from nki.core.locks import rlock
from nki.core.source import UNKNOWN
from nki.native import cpu_features
from nki.native.objects import executable_memory
from nki.native.objects.elf import ElfError
from nki.native.objects.object_cache import Objects, object_key
from nki.options import Options
from nki.store.settings import settings

_MLIR = "torch_mlir"
_NEEDED = ("avx2", "f16c", "fma")
"""Without these, x86 processors need functions of the C library for fused multiply-adds and float16."""


class Library:
    """The native functions of this process; all threads may use it.

    Args:
        objects: where objects are kept between processes; None for nowhere.
        loads: whether objects can be loaded; if not, functions are compiled in every process anew.
    """

    def __init__(self, objects: Objects | None, loads: bool) -> None:
        self._objects = objects if loads else None
        self._loads = loads
        self._modules: dict[str, dict[str, int]] = {}
        self._on_disk: dict[str, bool] = {}
        self._lock = rlock()

    def address(self, name: str, text: Callable[[], str]) -> int:
        """The address of the function `name`, the only one of its module.

        Args:
            name: of the function, with a digest of everything that determines the text.
            text: makes the MLIR module that defines it; called only if neither memory nor disk have it.

        Raises:
            ExecutionError: it cannot be compiled.
        """
        found = self._modules.get(name)
        return (found or self.addresses(name, (name,), text))[name]

    def addresses(self, module: str, names: Sequence[str], text: Callable[[], str]) -> dict[str, int]:
        """The addresses of functions that are compiled together.

        Args:
            module: a name of all of them, with a digest of everything that determines the text.
            names: of the functions.
            text: makes the MLIR module that defines them; called only if neither memory nor disk have it.

        Raises:
            ExecutionError: they cannot be compiled, or the text does not define all of them.
        """
        with self._lock:
            found = self._modules.get(module)
            if found is None:
                found = self._loaded(module, names) or self._compiled(module, names, text)
                self._modules[module] = found
            return {name: found[name] for name in names}

    def found(self, module: str, names: Sequence[str]) -> dict[str, int] | None:
        """The addresses of functions that are loaded already or on disk; None if they would have to be compiled."""
        with self._lock:
            known = self._modules.get(module) or self._loaded(module, names)
            if known is None:
                return None
            self._modules[module] = known
            return {name: known[name] for name in names}

    def kept(self, key: str) -> bytes | None:
        """What `keep` kept under this key, if nothing about it is in doubt."""
        return None if self._objects is None else self._objects.get(key)

    def keep(self, key: str, data: bytes) -> None:
        """Keep data beside the objects, for this installation and processor, which the key has to cover."""
        if self._objects is not None:
            self._objects.put(key, data)

    def has(self, name: str) -> bool:
        """Whether a function or module is loaded already or on disk, and would cost no compilation.

        The disk is asked once for each name: what another process adds later is found when it is needed.
        """
        if name in self._modules:
            return True
        if name not in self._on_disk:
            self._on_disk[name] = self._objects is not None and object_key(name) in self._objects
        return self._on_disk[name]

    def _loaded(self, module: str, names: Sequence[str]) -> dict[str, int] | None:
        """Addresses of functions from disk; None if their code is not there, or is not what it should be."""
        data = None if self._objects is None else self._objects.get(object_key(module))
        if data is None:
            return None
        try:
            found = executable_memory.load(data)
        except (ElfError, OSError):
            return None
        return found if found.keys() >= set(names) else None

    def _compiled(self, module: str, names: Sequence[str], text: Callable[[], str]) -> dict[str, int]:
        """Compile a module, and keep its object where objects can be loaded."""
        try:
            from nki.native.objects import jit
        except ImportError as error:
            raise _not_compiled(module, str(error)) from error

        source = text()
        try:
            found = self._from_object(module, jit.compile_object(source)) if self._loads else None
            if found is None:
                found = jit.in_process(source)
        except (jit.CompileError, ElfError) as error:
            raise _not_compiled(module, str(error)) from error
        missing = sorted(set(names) - found.keys())
        if missing:
            raise _not_compiled(module, f"its text does not define {', '.join(missing)}")
        return found

    def _from_object(self, module: str, data: bytes) -> dict[str, int] | None:
        """Load and keep a new object; None if the system gives no memory for it: then it is compiled in place."""
        try:
            found = executable_memory.load(data)
        except OSError:
            return None
        if self._objects is not None:
            self._objects.put(object_key(module), data)
        return found


def library(options: Options) -> Library | None:
    """The library of this process; None where there is no native code, and `library_reason` says why.

    Args:
        options: those of the call.

    Raises:
        UsageError: there is none, and NKI_REQUIRE_NATIVE=1 does not allow that.
    """
    reason = library_reason(options)
    if not reason:
        where = settings()
        return _library(where.directory if where.enabled else None, where.limit_bytes)
    if options.require_native:
        raise required(reason)
    return None


def required(reason: str) -> UsageError:
    """The error for lack of native code where NKI_REQUIRE_NATIVE=1 does not allow that."""
    return UsageError(
        "native.unavailable",
        f"native code is required, but {reason}",
        rule="NKI_REQUIRE_NATIVE=1 makes it an error if instructions cannot be executed natively",
        fix="unset the variable that the message names, install the package torch-mlir, or unset NKI_REQUIRE_NATIVE",
    )


def library_reason(options: Options) -> str:
    """Why there is no native code for a call with these options; "" if there is."""
    if options.native == "0":
        return "NKI_NATIVE=0 switches it off"
    return _lack()


@cache  # the machine does not change, nor what is installed
def _lack() -> str:
    """What this machine lacks for native code; "" if it lacks nothing.

    The compiler is not loaded to find out: objects on disk may be all that is needed.
    """
    if find_spec(_MLIR) is None:
        return "the package torch-mlir, which compiles it, is not installed"
    missing = [name for name in _NEEDED if platform.machine() in ("x86_64", "AMD64") and not cpu_features.has(name)]
    return f"the processor does not have {', '.join(missing)}" if missing and cpu_features.features() else ""


@lru_cache(maxsize=16)  # one for each directory and limit, which the environment names
def _library(directory: Path | None, limit_bytes: int) -> Library:
    """One object each, so that nothing is loaded twice."""
    objects = None if directory is None else Objects(directory, limit_bytes)
    return Library(objects, not executable_memory.refusal())


def _not_compiled(module: str, why: str) -> ExecutionError:
    return ExecutionError(
        "native.compile",
        f"native code for {module} could not be made: {why}",
        rule="the package torch-mlir compiles what the native executor needs",
        fix="set NKI_NATIVE=0, which executes everything with NumPy and gives the same results",
        location=UNKNOWN,
    )
