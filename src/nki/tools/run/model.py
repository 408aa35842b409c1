"""Running a compiled model from a file: arrays by name or by position, results by name."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nki.core.errors import UsageError
from nki.core.regular import read_regular
from nki.core.source import UNKNOWN
from nki.core.visible import file_name
from nki.runtime.model import Model
from nki.store.artifact.model import Port
from nki.store.files import write_whole
from nki.tools.arguments import made_up, parse_arguments
from nki.tools.request import usage_error


def model_inputs(model: Model, args: Sequence[str], inputs: str | None, seed: int) -> list[np.ndarray]:
    """The arrays of a call in the order of the model's arguments; made-up ones if none is given.

    Raises:
        UsageError: one is missing or unknown, or has another shape or dtype than the model was compiled for.
    """
    ports = model.part.arguments
    if inputs is not None:
        if args:
            raise usage_error("run.inputs", "--arg and --inputs together", "give all arrays in one of the two ways")
        paths = [Path(text.strip()) for text in inputs.split(",") if text.strip()]
        if len(paths) != len(ports):
            names = ", ".join(port.name for port in ports) or "none"
            raise usage_error(
                "run.inputs", f"--inputs names {len(paths)} files, for {names}", "name one for each argument"
            )
        return [_checked(_read(path, port), port) for path, port in zip(paths, ports, strict=True)]
    if not args:
        return [made_up(port.name, port.shape, port.dtype, seed) for port in ports]
    values = parse_arguments(args, seed, wide=True)
    unknown = sorted(values.keys() - {port.name for port in ports})
    missing = [port.name for port in ports if port.name not in values]
    if unknown or missing:
        what = f"no argument {unknown[0]!r}" if unknown else f"nothing for {', '.join(missing)}"
        raise _error(what, ", ".join(map(_shown, ports)) or "no arguments")
    return [_checked(values[port.name], port) for port in ports]


def save_results(output: Path, named: Sequence[tuple[str, np.ndarray]]) -> list[Path]:
    """Write results to a folder, one .npy file each; says where.

    Raises:
        UsageError: "output.folder" if that cannot be done.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        files = [output / f"{name}.npy" for name in _file_names([name for name, _ in named])]
        for file, (_, array) in zip(files, named, strict=True):
            data = io.BytesIO()
            np.save(data, array)
            write_whole(file, data.getvalue())
    except OSError as problem:
        raise usage_error(
            "output.folder", f"-o {output}: {problem.strerror}", "name a folder that can be made"
        ) from None
    return files


def _file_names(names: Sequence[str]) -> list[str]:
    """One for each result; what two would share gets the number of the result."""
    found = [file_name(name) for name in names]
    return [name if found.count(name) == 1 else f"{name}.{number}" for number, name in enumerate(found)]


def _read(path: Path, port: Port) -> np.ndarray:
    try:
        found: Any = np.load(io.BytesIO(read_regular(path)), allow_pickle=False)
    except (OSError, ValueError) as problem:
        raise usage_error("run.inputs", f"{path} cannot be read: {problem}"[:300], "name a .npy file") from None
    # NumPy keeps dtypes that it does not know (bfloat16) as plain bytes.
    plain = found.dtype.kind == "V" and found.dtype.itemsize == port.dtype.itemsize
    return np.asarray(found.view(port.dtype.numpy) if plain else found)


def _checked(value: Any, port: Port) -> np.ndarray:
    """An array as the model takes it: 64-bit numbers, which the device has not, become 32-bit ones if they fit."""
    made = value if isinstance(value, np.ndarray) else _of_literal(value, port)
    if made.shape == port.shape and made.dtype.name == _WIDE.get(port.dtype.name):
        made = _narrowed(made, port)
    if made.shape != port.shape or made.dtype != port.dtype.numpy:
        size = "x".join(map(str, port.shape))
        array = f"give an array of {size} and {port.dtype}" if size else f"write --arg {port.name}=NUMBER"
        raise UsageError(
            "run.arguments",
            f"{port.name} is {made.dtype}{list(made.shape)}",
            rule=f"the model was compiled for {_shown(port)}",
            fix=f"{array}, or compile the model for other shapes",
            location=UNKNOWN,
        )
    return made


def _of_literal(value: Any, port: Port) -> np.ndarray:
    """A Python number, or numbers in lists, in the dtype of the model if that holds them."""
    try:
        found = np.asarray(value) if isinstance(value, int | float | list | tuple) else None
    except ValueError:  # lists of several lengths
        found = None
    kinds = "b" if port.dtype.kind == "bool" else "bui" if port.dtype.is_integer else "buif"
    if found is None or found.dtype.kind not in kinds:
        raise UsageError(
            "run.arguments",
            f"{port.name} is {str(value)[:60]!r}",
            rule=f"the model was compiled for {_shown(port)}",
            fix=f"give numbers that {port.dtype} has",
            location=UNKNOWN,
        )
    return _narrowed(found, port)


_WIDE = {"int32": "int64", "uint32": "uint64", "float32": "float64"}
"""What frameworks have in the place of 32-bit numbers."""


def _narrowed(array: np.ndarray, port: Port) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        made = array.astype(port.dtype.numpy)
    lost = made != array if array.dtype.kind in "iu" else np.isinf(made) & np.isfinite(array)
    if np.any(lost):
        number = array[lost][0] if array.ndim else array
        raise UsageError(
            "graph.range",
            f"{port.name} is {array.dtype} and has the value {number}",
            rule=f"{port.name} is {port.dtype} on the device",
            fix="keep such numbers on the host, or split them into two arrays",
            location=UNKNOWN,
        )
    return np.asarray(made)


def _shown(port: Port) -> str:
    size = "x".join(map(str, port.shape))
    return f"{port.name}={size}:{port.dtype}" if size else f"{port.name}=NUMBER"


def _error(message: str, wanted: str) -> UsageError:
    return UsageError(
        "run.arguments",
        message,
        rule=f"the model was compiled for {wanted}",
        fix=f"write --arg {wanted.partition(', ')[0]}, or compile the model for other shapes",
        location=UNKNOWN,
    )
