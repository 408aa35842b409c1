"""``--arg NAME=VALUE``: arrays by shape and dtype, and Python literals."""

from __future__ import annotations

import ast
import io
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nki.core.dtypes import DType, as_dtype
from nki.core.errors import DtypeError, UsageError
from nki.core.regular import read_regular
from nki.core.source import UNKNOWN
from nki.tools.suggestions.nearest_word import nearest

FORMS = (
    "NAME=SHAPE:DTYPE[:random|zeros|ones|FILE.npy], for example a=128x512:bfloat16, or NAME=LITERAL, for example n=4"
)
FILLS = ("random", "zeros", "ones")
_MAGIC = (b"\x93NUMPY", b"PK")
_MEANT = re.compile(r"\bnl\.(\w+)")
_SHAPE = re.compile(r"\d+(x\d+)+")
_ARRAY = re.compile(r"(?P<shape>\d+(x\d+)*):(?P<dtype>[^:]+)(:(?P<fill>.+))?")


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array as written on the command line.

    Attributes:
        wide: "int64" and the like for numbers of 64 bits, of which `dtype` is what the device has instead; else "".
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    fill: str
    wide: str = ""

    def make(self, seed: int) -> np.ndarray:
        """The array. Random floats are standard normal, integers lie in [0, 100); each name has its own stream."""
        match self.fill:
            case "zeros":
                return np.zeros(self.shape, self.dtype.numpy)
            case "ones" if not self.dtype.is_packed:
                return np.ones(self.shape, self.dtype.numpy)
            case "random" if not self.dtype.is_packed:
                return self._random(np.random.default_rng([seed, zlib.crc32(self.name.encode())]))
            case "ones" | "random":
                raise _error("arg.fill", f"{self.name} is {self.dtype}", "fill packed arrays with zeros or a FILE.npy")
        return self._load()

    def _random(self, generator: np.random.Generator) -> np.ndarray:
        if self.dtype.kind == "bool":
            return generator.integers(0, 2, self.shape).astype(bool)
        if self.dtype.is_integer:
            return generator.integers(0, 100, self.shape).astype(self.dtype.numpy)
        if self.dtype.kind == "scale":
            return np.exp2(generator.integers(-4, 5, self.shape)).astype(self.dtype.numpy)
        return generator.standard_normal(self.shape, np.float32).astype(self.dtype.numpy)

    def _load(self) -> np.ndarray:
        meant = nearest(self.fill, FILLS, 0.5)
        if meant and not Path(self.fill).suffix and not Path(self.fill).exists():
            fix = f"write --arg {self.name}={'x'.join(map(str, self.shape))}:{self.dtype}:{meant}"
            raise _error("arg.fill", f"{self.name}: there is no way to fill it that is called {self.fill!r}", fix)
        array = _read(Path(self.fill), self.name)
        # NumPy stores the dtypes that it does not know as plain bytes.
        if array.dtype.kind == "V" and array.dtype.itemsize == self.dtype.itemsize:
            array = array.view(self.dtype.numpy)
        if self.wide and array.dtype.name == self.wide and array.shape == self.shape:
            return array
        if array.dtype != self.dtype.numpy or array.shape != self.shape:
            raise _error(
                "arg.file-contents",
                f"{self.fill} holds {array.dtype}{list(array.shape)}, {self.name} is {self.dtype}{list(self.shape)}",
                f"write --arg {self.name}={_written(array)}:{self.fill}, or convert the file",
            )
        return array


def made_up(name: str, shape: tuple[int, ...], dtype: DType, seed: int) -> np.ndarray:
    """The array of an argument that nobody gave: random, or zeros where the dtype is packed."""
    return ArraySpec(name, shape, dtype, "zeros" if dtype.is_packed else "random").make(seed)


def parse_arguments(texts: Sequence[str], seed: int = 0, wide: bool = False) -> dict[str, Any]:
    """Values by name, in the order given.

    Args:
        wide: numbers of 64 bits are taken, from files as they are there; for models, which know what becomes of them.

    Raises:
        UsageError: a text of no known form, a name given twice, an unknown dtype or an unreadable file.
    """
    found = parse_specs(texts, wide)
    return {name: value.make(seed) if isinstance(value, ArraySpec) else value for name, value in found.items()}


def parse_specs(texts: Sequence[str], wide: bool = False) -> dict[str, Any]:
    """As `parse_arguments`, with the `ArraySpec` in the place of each array."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise _error("arg.form", f"--arg {text!r}", _named_fix(text))
        if name in values:
            raise _error("arg.twice", f"--arg {name} is given twice", "remove one of the two")
        array = _ARRAY.fullmatch(value)
        values[name] = _spec(name, array, wide) if array else _literal(name, value)
    return values


def _named_fix(text: str) -> str:
    """What to write instead of a text that begins with no name and equals sign."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if name.isidentifier():
        other = f" for an array, --arg {name}=4 for a constant"
        return f"write --arg {name}={value}" if equals else f"write --arg {name}=128x512:float32{other}"
    name, colon, value = text.partition(":")
    if colon and name.isidentifier() and (_ARRAY.fullmatch(value) or _SHAPE.fullmatch(value)):
        return f"write --arg {name}={value}{'' if ':' in value else ':float32'}"
    if _ARRAY.fullmatch(text) or _SHAPE.fullmatch(text):
        return f"put the name of the argument before it: --arg NAME={text}{'' if ':' in text else ':float32'}"
    return "put a name before the equals sign"


def _check_memory(name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Raise UsageError "arg.shape" for an array that this machine has no memory for, whatever its dtype."""
    bits = re.search(r"\d+$", dtype)
    needed = prod(shape) * (max(8, int(bits[0])) // 8 if bits else 1)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        message = f"{name} takes {needed / 2**30:,.1f} GiB, and this machine has {there / 2**30:,.1f} GiB"
        raise _error("arg.shape", message, "use smaller sizes")


def _spec(name: str, match: re.Match[str], wide: bool) -> ArraySpec:
    shape = tuple(int(size) for size in match["shape"].split("x"))
    if prod(shape) == 0:
        raise _error("arg.shape", f"{name} has shape {match['shape']} and no element", "use sizes of at least 1")
    _check_memory(name, shape, match["dtype"])
    fill, written = match["fill"] or "random", match["dtype"].removeprefix("nl.")
    if wide and written in _NARROW:
        return ArraySpec(name, shape, as_dtype(_NARROW[written]), fill, written)
    return ArraySpec(name, shape, _dtype(name, match), fill)


_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
"""What the device has in the place of numbers of 64 bits."""


def _dtype(name: str, match: re.Match[str]) -> DType:
    text, fill = match["dtype"], f":{match['fill']}" if match["fill"] else ""
    try:
        found = as_dtype(text.removeprefix("nl."))
    except DtypeError as problem:
        meant = _MEANT.search(problem.fix)
        fix = f"write --arg {name}={match['shape']}:{meant[1]}{fill}" if meant else problem.fix
        raise _error("arg.dtype", f"{name}: {problem.message}", fix) from None
    if not found.device:
        narrow = _NARROW.get(text.removeprefix("nl."), "float32")
        fix = f"write --arg {name}={match['shape']}:{narrow}{fill}"
        raise _error("arg.dtype", f"{name} is {found}, which does not exist on the device", fix)
    return found


def _literal(name: str, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        fix = f"""--arg '{name}="{text}"' for a string""" if text.isidentifier() else _array_fix(name, text)
        raise _error("arg.literal", f"{name}={text} is neither an array nor a Python literal", fix) from None


def _array_fix(name: str, text: str) -> str:
    """What an array is written as, for texts that have its sizes and its dtype in another form."""
    if text.endswith((".npy", ".npz")):
        return _file_argument(name, Path(text))
    if _SHAPE.fullmatch(text):
        return f"write --arg {name}={text}:float32, or another dtype"
    dtype = next((word for word in re.findall(r"[a-z]\w*", text) if word != "nl" and _is_dtype(word)), "")
    rest = re.sub(rf"\b{dtype}\b", " ", text) if dtype else text
    sizes = re.findall(r"\d+", rest)
    if sizes:
        return f"write --arg {name}={'x'.join(sizes)}:{dtype or 'float32'}"
    return "write a Python literal, or SHAPE:DTYPE, for example 128x512:float32"


def _file_argument(name: str, path: Path) -> str:
    """The shape and the dtype of a file belong to the argument; they are read where they can be."""
    if path.suffix == ".npz":
        return f"save the array by numpy.save, and write --arg {name}=SHAPE:DTYPE:FILE.npy"
    try:
        array = _read(path, name)
    except UsageError:
        return f"write --arg {name}=SHAPE:DTYPE:{path}, for example --arg {name}=128x512:float32:{path}"
    return f"write --arg {name}={_written(array)}:{path}"


def _written(array: np.ndarray) -> str:
    return f"{'x'.join(map(str, array.shape))}:{array.dtype}"


def _is_dtype(word: str) -> bool:
    try:
        as_dtype(word)
    except DtypeError:
        return False
    return True


def _read(path: Path, name: str) -> np.ndarray:
    fix = "name a file that numpy.save wrote"
    try:
        data = read_regular(path)
    except OSError as problem:
        raise _error("arg.file", f"{name}: {path} cannot be read: {problem.strerror}", fix) from None
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as problem:
        reason = str(problem) if data.startswith(_MAGIC) else "it is no .npy file"
        raise _error("arg.file", f"{name}: {path} cannot be read: {reason}", fix) from None
    if isinstance(array, np.ndarray):
        return array
    array.close()
    raise _error("arg.file", f"{name}: {path} holds several arrays", "name a .npy file with one array")


def _error(code: str, message: str, fix: str) -> UsageError:
    return UsageError(code, message, fix=fix, rule=f"an argument is {FORMS}", location=UNKNOWN)
