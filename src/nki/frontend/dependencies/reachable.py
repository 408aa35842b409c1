"""Everything that a kernel's Python can read from outside: functions, classes, modules, and the values in them."""

from __future__ import annotations

import builtins
import importlib.util
import pathlib
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nki.frontend.dependencies.code_objects import Facts, Read, facts_of
from nki.frontend.dependencies.digest import ATOMS, DigestWriter
from nki.frontend.dependencies.foreign_code import (
    Origin,
    is_impure,
    is_impure_module,
    is_listed_impure,
    module_of,
    origin_of_code,
    origin_of_module,
)
from nki.frontend.dependencies.identity_checks import MISSING
from nki.frontend.dependencies.value_contents import named, write_object
from nki.spec.instruction import Instruction

# What classes carry that no kernel's meaning depends on, or that follows from the rest and is filled when first used.
_BESIDES_CLASS = frozenset(
    {
        "__dict__", "__weakref__", "__doc__", "__annotations__", "__annotations_cache__", "__annotate__",
        "__annotate_func__", "__slotnames__", "__abstractmethods__", "_abc_impl", "_value2member_map_",
        "__static_attributes__", "__firstlineno__", "__parameters__", "__orig_bases__", "__dataclass_params__",
        "__non_callable_proto_members__",
    }
)  # fmt: skip


_ON_DISK = frozenset(dir(pathlib.Path)) - frozenset(dir(pathlib.PurePath))
"""Methods of paths that look at the disk, or at the process."""


class ReachableWalk:
    """One pass from a kernel's function, and from what its arguments name, over everything behind them.

    A user's function counts by its code and by the values that its names stand for, found without running it; a user's
    class by everything in it; an object by its attributes; a library's function by its name and version. What is read
    from a module counts, not the module.

    Attributes:
        writer: the hash, the places, and what cannot be compared.
        codes: the user's code that was reached, by identity.
    """

    def __init__(self, function: FunctionType, references: tuple[Any, ...]) -> None:
        self.writer = DigestWriter()
        self.codes: dict[int, CodeType] = {}
        self._names: set[str] = set()
        self._texts: set[str] = set()
        self._computed = False
        self._read: set[tuple[str, str]] = set()
        self.writer.value(function, f"function {function.__qualname__}")
        for reference in references:
            self.writer.value(reference, f"argument {_name_of(reference)}")
        self.writer.drain(self._content)
        while self._read_modules():
            self.writer.drain(self._content)
        self._look_at_paths()

    def _content(self, value: Any, label: str) -> None:
        if isinstance(value, FunctionType):
            self._function(value, label)
        elif isinstance(value, type):
            self._class(value, label)
        elif type(value) is Instruction and origin_of_module(value.__module__) == "package":
            # As a module's own: what was declared with this package belongs to its version.
            self.writer.text("instruction", value.__module__, value.name)
        elif isinstance(value, ModuleType):
            self.writer.refuse(f"{label} is a module of class {type(value).__qualname__}, which computes its names")
        else:
            write_object(self.writer, value, label)

    # --- functions

    def _function(self, function: FunctionType, label: str) -> None:
        writer = self.writer
        origin = origin_of_code(function.__code__)
        writer.text("function", origin)
        if origin != "user":
            self._library_function(function, label, origin)
            return
        facts = facts_of(function.__code__)
        self._note(facts)
        writer.probes.function(function)
        writer.constant(facts.digest)
        writer.value(function.__defaults__, f"the defaults of {function.__qualname__}")
        writer.value(function.__kwdefaults__, f"the defaults of {function.__qualname__}")
        if vars(function):
            writer.mapping(vars(function), function.__qualname__)
        cells = self._cells(function, label)
        for read in facts.reads:
            if read.kind == "import":
                self._import(read, function)
            elif read.kind == "free" and read.name in cells:
                self._follow(cells[read.name], read, function)
            elif read.kind == "global":
                self._follow(self._global(read.name, function), read, function)

    def _library_function(self, function: FunctionType, label: str, origin: Origin) -> None:
        """Write a function of a library by its name, with what a decorator put into it."""
        writer = self.writer
        writer.constant(function.__qualname__)
        self._version(function.__module__, origin)
        if origin in ("standard", "library"):
            named(writer, function, label)
            self._cells(function, label)
        elif "<locals>" in function.__qualname__:  # one of many that the same line of this package made
            writer.value(function.__defaults__, f"the defaults of {function.__qualname__}")
            writer.value(function.__kwdefaults__, f"the defaults of {function.__qualname__}")
            self._cells(function, label)
        writer.value(vars(function).get("__wrapped__"), label)

    def _cells(self, function: FunctionType, label: str) -> dict[str, Any]:
        """The variables of functions around, by name; modules in them are followed where they are used."""
        found = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.writer.probes.cell(cell)
            try:
                found[name] = cell.cell_contents
            except ValueError:
                found[name] = MISSING
            self.writer.text("cell", name)
            if not isinstance(found[name], ModuleType):
                self.writer.value(found[name], f"{name}, a variable around {function.__qualname__}")
        return found

    def _note(self, facts: Facts) -> None:
        self._names |= facts.names
        self._texts |= facts.texts
        self._computed = self._computed or facts.computed
        self.codes.update((id(code), code) for code in facts.codes)

    # --- names

    def _global(self, name: str, function: FunctionType) -> Any:
        names = function.__globals__
        self.writer.probes.name(names, name)
        if name in names:
            return names[name]
        self.writer.probes.name(vars(builtins), name)
        found = vars(builtins).get(name, MISSING)
        if found is not MISSING and is_impure("builtins", name):
            self.writer.refuse(f"{function.__qualname__} calls {name}")
        return found

    def _follow(self, value: Any, read: Read, function: FunctionType) -> None:
        """From module to module along the attributes that are taken; the first other value counts as a whole."""
        path, origin = read.name, None
        for attribute in read.attributes:
            if type(value) is not ModuleType:
                break
            path, origin = f"{path}.{attribute}", origin_of_module(value.__name__)
            self._check(value.__name__, attribute, origin, path, function)
            value = self._attribute(value, attribute, origin)
        self.writer.text("read", path)
        self._value(value, f"{path}, which {function.__qualname__} reads,", origin)

    def _attribute(self, module: ModuleType, name: str, origin: Origin) -> Any:
        """What a module has under a name; a user's module may compute it, as its ``__getattr__`` says."""
        names = vars(module)
        self.writer.probes.name(names, name)
        if name not in names and origin == "user":
            self.writer.probes.name(names, "__getattr__")
            self.writer.value(names.get("__getattr__", MISSING), f"{module.__name__}.__getattr__")
        return names.get(name, MISSING)

    def _value(self, value: Any, label: str, origin: Origin | None) -> None:
        """What a library's own module holds belongs to its version, unless somebody put something else there."""
        if origin in ("package", "standard", "library") and not _is_foreign(value):
            self.writer.text("held", type(value).__qualname__)
            return
        self.writer.value(value, label)

    def _check(self, module: str, attribute: str, origin: Origin, path: str, function: FunctionType) -> None:
        self._version(module, origin)
        if origin in ("standard", "library") and is_impure(module, attribute):
            value = vars(sys.modules[module]).get(attribute) if module in sys.modules else None
            if is_listed_impure(module, attribute) or not (origin == "library" and _is_type_like(value)):
                self.writer.refuse(f"{function.__qualname__} reads {path}, which may differ from call to call")

    def _import(self, read: Read, function: FunctionType) -> None:
        name = read.name
        if read.level:
            package = str(function.__globals__.get("__package__") or "")
            name = importlib.util.resolve_name("." * read.level + name, package) if package else name
        module = sys.modules.get(name)
        self.writer.text("import", name)
        if module is None:
            self.writer.refuse(f"{function.__qualname__} imports {name}, which is not imported yet")
            return
        self.writer.probes.name(sys.modules, name)
        self._follow(module, Read("global", name, read.attributes), function)

    # --- classes and modules

    def _class(self, kind: type, label: str) -> None:
        writer = self.writer
        origin = origin_of_module(module_of(kind))
        writer.text("class", origin, module_of(kind), kind.__qualname__)
        if origin == "user":
            writer.probes.kind(kind, "__bases__")
            writer.value(kind.__bases__, f"the bases of {kind.__qualname__}")
            writer.value(type(kind), f"the metaclass of {kind.__qualname__}")
            writer.mapping(vars(kind), kind.__qualname__, _BESIDES_CLASS)
            return
        self._version(module_of(kind), origin)
        if origin == "standard" and is_impure_module(module_of(kind)) and not issubclass(kind, BaseException):
            writer.refuse(f"{label} is {module_of(kind)}.{kind.__qualname__}, which may differ from call to call")

    def _read_modules(self) -> bool:
        """Write what may be read from modules that were met as values: every name that occurs anywhere."""
        before = len(self._read)
        for name, module in sorted(self.writer.modules.items()):
            origin = origin_of_module(name)
            self._version(name, origin)
            if origin == "package":
                continue
            if origin != "user":
                self._library_module(name, origin)
                continue
            if self._computed:
                self.writer.probes.mapping(vars(module))
            for attribute in sorted(self._attributes_of(module)):
                if (name, attribute) not in self._read:
                    self._read.add((name, attribute))
                    self.writer.probes.name(vars(module), attribute)
                    self.writer.text("of module", name, attribute)
                    self.writer.value(vars(module)[attribute], f"{name}.{attribute}")
        return len(self._read) > before

    def _look_at_paths(self) -> None:
        """A path that is only taken apart counts by its text; what lies there may be another thing the next time."""
        looked = "" if self._computed else next(iter(sorted(self._names & _ON_DISK)), "")
        if self.writer.paths and (looked or self._computed):
            what = f"calls .{looked}()" if looked else "computes names of attributes"
            self.writer.refuse(f"{self.writer.paths[0]} is a path, and the kernel {what}: the disk may change")

    def _attributes_of(self, module: ModuleType) -> set[str]:
        computing = {"__getattr__"} & vars(module).keys()
        if self._computed:
            return {name for name in vars(module) if not name.startswith("__")} | computing
        return self._names & vars(module).keys() | computing

    def _library_module(self, name: str, origin: Origin) -> None:
        used = sorted(self._names | (self._texts if self._computed else set()))
        found = next((attribute for attribute in used if is_impure(name, attribute)), None)
        if is_impure_module(name) or (found is not None and found in vars(sys.modules[name])):
            self.writer.refuse(f"module {name} is used as a value, and {found or 'it'} may differ from call to call")

    def _version(self, module: str | None, origin: Origin) -> None:
        if origin == "library" and module:
            top = module.partition(".")[0]
            held = sys.modules.get(top)
            self.writer.text("version", top, str(vars(held).get("__version__", "")) if held is not None else "")


def _is_foreign(value: Any) -> bool:
    """Whether a value in a library's module is to be looked at: plain data, and what comes from a user."""
    if type(value) in ATOMS or value is MISSING:
        return True
    if isinstance(value, FunctionType):
        return origin_of_code(value.__code__) == "user"
    if isinstance(value, ModuleType):
        return True
    kind = value if isinstance(value, type) else type(value)
    return origin_of_module(module_of(kind)) == "user"


def _is_type_like(value: Any) -> bool:
    return isinstance(value, type) or (module_of(type(value)), type(value).__name__) == ("torch", "dtype")


def _name_of(reference: Any) -> str:
    return reference.__qualname__ if isinstance(reference, type | FunctionType) else type(reference).__qualname__
