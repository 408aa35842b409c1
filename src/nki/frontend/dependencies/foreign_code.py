"""Whose code a thing is, and which parts of libraries may answer differently from one call to the next."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Literal

from nki.core.source import is_internal

Origin = Literal["package", "standard", "library", "user"]

LIBRARIES = frozenset({"numpy", "ml_dtypes", "scipy", "torch", "jax", "jaxlib", "_pytest"})
"""Packages that count by their version, not by their source."""

_PACKAGE = str(Path(__file__).absolute().parents[2]) + "/"
_EXAMPLES = _PACKAGE + "examples/"
_STANDARD = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple({sysconfig.get_path(name) + "/" for name in ("purelib", "platlib")})

_PURE = frozenset(
    {
        "__future__", "_abc", "_bisect", "_collections", "_collections_abc", "_functools", "_heapq", "_operator",
        "_struct", "_weakrefset", "abc", "array", "bisect", "builtins", "cmath", "collections", "contextlib", "copy",
        "copyreg", "dataclasses", "enum", "fractions", "functools", "heapq", "itertools", "keyword", "logging", "math",
        "ml_dtypes", "ntpath", "numbers", "numpy", "operator", "posixpath", "re", "reprlib", "scipy", "statistics",
        "string", "struct", "textwrap", "traceback", "types", "typing", "typing_extensions", "warnings",
    }
)  # fmt: skip
"""Modules whose functions depend on their arguments alone, or say something without affecting the program."""

_PURE_ATTRIBUTES: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {
        "sys": frozenset({"maxsize", "float_info", "int_info", "version_info", "byteorder", "stdout", "stderr"}),
        "os": frozenset({"path", "sep", "linesep", "name"}),
        "inspect": frozenset(
            {"Parameter", "Signature", "get_annotations", "isclass", "isfunction", "ismethod", "signature"}
        ),
        "json": frozenset({"dumps", "loads"}),
        "torch": frozenset(),
        "jax": frozenset({"numpy"}),
        # What pytest writes into the asserts of a test module, which says how they failed.
        "_pytest": frozenset(
            {
                "_call_reprcompare",
                "_check_if_assertion_pass_impl",
                "_format_assertmsg",
                "_format_boolop",
                "_format_explanation",
                "_saferepr",
                "_should_repr_global_name",
            }
        ),
    }
)
"""What is pure of modules that are not."""

_IMPURE_ATTRIBUTES: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {
        "numpy": frozenset({
            "random", "load", "fromfile", "loadtxt", "genfromtxt", "memmap", "fromregex", "DataSource", "empty",
            "empty_like", "ctypeslib", "datetime64", "geterr", "seterr", "errstate", "get_printoptions", "lib",
        }),
        "scipy": frozenset({"io", "datasets"}),
        "posixpath": frozenset({
            "abspath", "exists", "lexists", "expanduser", "expandvars", "getatime", "getctime", "getmtime", "getsize",
            "isdir", "isfile", "islink", "ismount", "realpath", "relpath", "samefile",
        }),
        "builtins": frozenset({
            "open", "input", "eval", "exec", "compile", "globals", "__import__", "breakpoint",
        }),
    }
)  # fmt: skip
"""What is impure of modules that are pure."""


def origin_of_code(code: CodeType) -> Origin:
    """By the file that the code came from; code without a file is the user's."""
    file = code.co_filename
    if is_internal(code) and file.startswith(_PACKAGE):
        return "package"
    return _of_file(file)


def origin_of_module(name: str) -> Origin:
    """By the file of a module that was imported, else by its name."""
    top = name.partition(".")[0]
    if top in LIBRARIES:
        return "library"
    module = sys.modules.get(name)
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    if isinstance(file, str):
        return _of_file(file)
    return "standard" if top in sys.stdlib_module_names else "user"


def module_of(kind: type) -> str:
    """The name of the module that defines a class; classes in C may have a descriptor there."""
    return kind.__module__ if isinstance(kind.__module__, str) else "builtins"


@lru_cache(maxsize=4096)  # asked for each code object of a file, and the text decides
def _of_file(file: str) -> Origin:
    if file.startswith(_PACKAGE):
        return "user" if file.startswith(_EXAMPLES) else "package"
    if file.startswith(_INSTALLED):
        rest = next(file.removeprefix(path) for path in _INSTALLED if file.startswith(path))
        return "library" if rest.partition("/")[0].removesuffix(".py") in LIBRARIES else "user"
    return "standard" if file.startswith((*_STANDARD, "<frozen")) else "user"


def is_impure_module(name: str) -> bool:
    """Whether a library's module may give another answer the next time, whatever is taken from it."""
    return name.partition(".")[0] not in _PURE and not _known(name, _PURE_ATTRIBUTES)


def is_impure(module: str, attribute: str) -> bool:
    """Whether an attribute of a library's module may give another answer the next time."""
    top = module.partition(".")[0]
    if top in _PURE:
        return is_listed_impure(module, attribute)
    return attribute not in _PURE_ATTRIBUTES.get(top, frozenset())


def is_listed_impure(module: str, attribute: str) -> bool:
    """Whether an attribute is known to give other answers, and not only not known to give the same."""
    top, *inner = module.split(".")
    return not _IMPURE_ATTRIBUTES.get(top, frozenset()).isdisjoint({attribute, *inner[:1]})


def _known(name: str, table: MappingProxyType[str, frozenset[str]]) -> bool:
    return name.partition(".")[0] in table
