"""Modules as MLIR text and as MLIR bytecode, in memory and in files."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from nki.core.errors import IRError
from nki.core.isolated import ends_by
from nki.core.nesting import MOST, too_deep
from nki.core.regular import read_regular
from nki.core.source import Location
from nki.ir.context import session, shared_context
from nki.ir.mlir import Context, MLIRError, Module, Operation, PassManager
from nki.ir.verify import ir_error

_MAGIC = b"NKIR\x01"
# An escaped backslash, or bytes that follow each other.
_ESCAPES = re.compile(r"\\\\|((?:\\[0-9A-Fa-f]{2})+)")
_STREAM = "-"
"""MLIR's name for text that is in no file."""
_HEADER = len(_MAGIC) + hashlib.sha256().digest_size


def to_text(module: Module, *, locations: bool = True) -> str:
    """MLIR's generic form; with locations it round-trips."""
    with session(module.context):
        return str(module.operation.get_asm(enable_debug_info=locations))


def from_text(text: str, context: Context | None = None, *, name: str = _STREAM) -> Module:
    """Parse and verify MLIR text; `name` stands for it in messages. Raises IRError "ir.parse" with MLIR's message."""
    _check_escapes(text)
    depth = too_deep(text)
    if depth:
        raise _unreadable(f"brackets are nested {depth} deep", f"at most {MOST} are nested in each other")
    try:
        return _parse(text, context)
    except IRError as error:
        frames = (
            replace(frame, file=name, function="the module") if frame.file == _STREAM else frame
            for frame in error.location.frames
        )
        error.location = Location(tuple(frames))
        raise


def to_bytecode(module: Module) -> bytes:
    """``NKIR``, a version byte, the SHA-256 of the rest, and MLIR bytecode, with locations.

    MLIR's bytecode reader ends the process on some damaged data, hence the checksum.
    """
    data = _bytecode(module)
    return _MAGIC + hashlib.sha256(data).digest() + data


def from_bytecode(data: bytes, context: Context | None = None) -> Module:
    """Parse and verify what `to_bytecode` made; raises IRError "ir.parse".

    The checksum finds damage and not intent; `load` tries a file in another process first.
    """
    body = data[_HEADER:]
    if not data.startswith(_MAGIC):
        raise _unreadable(f"the data starts with {data[:5]!r}", f"bytecode starts with {_MAGIC!r}")
    if data[len(_MAGIC) : _HEADER] != hashlib.sha256(body).digest():
        raise _unreadable(f"{len(body)} bytes of bytecode do not have their checksum", "bytecode is complete")
    return _parse(body, context)


def save(module: Module, path: Path) -> None:
    """Write text (``.mlir``) or bytecode (any other suffix); the file appears complete or not at all."""
    data = to_text(module).encode() if path.suffix == ".mlir" else to_bytecode(module)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path, context: Context | None = None) -> Module:
    """Read what `save` wrote, whatever the suffix.

    Raises:
        IRError: "ir.file" if it cannot be read, "ir.parse" if it is not MLIR.
    """
    try:
        data = read_regular(path)
        text = None if data.startswith(_MAGIC) else data.decode()
    except OSError as error:
        raise IRError("ir.file", f"{path}: {error.strerror}", fix="check the path") from None
    except UnicodeDecodeError:
        raise _unreadable(f"{path} is neither UTF-8 nor bytecode", "a file holds MLIR text or bytecode") from None

    def parse() -> Module:
        return from_bytecode(data, context) if text is None else from_text(text, context, name=str(path))

    signal = ends_by(parse)
    if signal:
        raise _unreadable(f"reading {path} ends a process by {signal}", "a file holds what nki compile writes")
    return parse()


def fingerprint(module: Module) -> str:
    """SHA-256 of the bytecode without locations, which name files of this machine."""
    with session(module.context):
        bare = module.operation.clone()
        PassManager.parse("any(strip-debuginfo)").run(bare)
        return hashlib.sha256(_written(bare)).hexdigest()


def _bytecode(module: Module) -> bytes:
    with session(module.context):
        return _written(module.operation)


def _written(operation: Operation) -> bytes:
    buffer = io.BytesIO()
    operation.write_bytecode(buffer)
    return buffer.getvalue()


def _parse(source: str | bytes, context: Context | None) -> Module:
    with session(context or shared_context()) as used:
        try:
            return Module.parse(source, used)
        except MLIRError as error:
            raise ir_error("ir.parse", error) from None


def _check_escapes(text: str) -> None:
    """Strings are UTF-8: the bindings end the process when a message of MLIR quotes one that is not."""
    try:
        text.encode()
        for match in _ESCAPES.finditer(text):
            if match[1]:
                bytes.fromhex(match[1].replace("\\", "")).decode()
    except UnicodeError as error:
        raise _unreadable(f"a string is not UTF-8: {error}", "strings are UTF-8") from None


def _unreadable(message: str, rule: str) -> IRError:
    return IRError("ir.parse", message, rule=rule, fix="compile the kernel again")
