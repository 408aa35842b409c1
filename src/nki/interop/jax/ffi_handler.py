"""XLA calls kernels here: a typed FFI handler over zero-copy buffers, in which no exception can get lost."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nki.core.errors import ExecutionError, NkiError
from nki.interop.common.backend_config import TARGET
from nki.interop.jax import ffi_structures as xla
from nki.interop.jax.activity import ACTIVITY
from nki.interop.jax.callee import CALLEES, Callee, Shaped
from nki.interop.jax.xla_errors import FAILURES

# Attributes are sorted by name (c_api.h, XLA_FFI_Attrs): positions of BackendConfig.attributes, and the kinds there.
_BINARY = ((4, b"klir_binary", xla.ATTRIBUTE_DICTIONARY), (0, b"binary", xla.ATTRIBUTE_STRING))


class Handshake:
    """What is known of XLA's interface.

    Attributes:
        version: of the interface; None while nobody said.
        problem: why kernels cannot be called through the interface; empty if they can.
    """

    def __init__(self) -> None:
        self.version: tuple[int, int] | None = None
        self.problem = "the handler is not registered"


HANDSHAKE = Handshake()
"""XLA takes one handler of a name in a process."""


def declared_version() -> tuple[int, int] | None:
    """The version in the C header that belongs to the installed XLA; None if there is no such header."""
    try:
        text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    except OSError:
        return None
    found = [re.search(rf"^#define XLA_FFI_API_{part} (\d+)$", text, re.M) for part in ("MAJOR", "MINOR")]
    major, minor = (int(number[1]) if number else -1 for number in found)
    return major, minor


def problem_with(version: tuple[int, int] | None, size: int) -> str:
    """Why an interface of this version, with call frames of that size, cannot be used; empty if it can."""
    known = ", ".join(f"{major}.{minor}" for major, minor in sorted(xla.VERSIONS))
    if version is None:
        return "XLA does not tell the version of its foreign function interface"
    if version not in xla.VERSIONS:
        return f"XLA's foreign function interface is version {version[0]}.{version[1]}, known here is {known}"
    if size < ctypes.sizeof(xla.CallFrame):
        return f"XLA's call frames have {size} bytes, expected are {ctypes.sizeof(xla.CallFrame)}"
    return ""


@xla.HANDLER
def _handle(pointer: Any) -> int | None:
    """One call by XLA, on any of its threads; ctypes holds the interpreter's lock meanwhile.

    An exception that left this function would be printed and forgotten, and the call would count as a success.
    """
    frame = pointer.contents
    try:
        if frame.extension_start:
            _introduce(frame)
        elif frame.stage == xla.STAGE_EXECUTE:
            with ACTIVITY.call():
                _execute(frame)
    except BaseException as error:  # noqa: BLE001 - nothing may leave, see above; the caller gets it from XLA
        return _failed(frame, error)
    return None


def _introduce(frame: Any) -> None:
    """XLA asks, when it takes the handler, for the version that it was written for."""
    extension = ctypes.cast(frame.extension_start, ctypes.POINTER(xla.Extension)).contents
    if extension.type != xla.EXTENSION_METADATA:
        return
    if frame.api:
        version = frame.api.contents.api_version
        HANDSHAKE.version = (version.major_version, version.minor_version)
    HANDSHAKE.problem = problem_with(HANDSHAKE.version, frame.struct_size)
    metadata = ctypes.cast(frame.extension_start, ctypes.POINTER(xla.MetadataExtension)).contents.metadata.contents
    metadata.api_version.major_version, metadata.api_version.minor_version = max(xla.VERSIONS)


def _execute(frame: Any) -> None:
    callee = _callee(frame)
    arrays = [_seen(frame.args.buffers[i], shaped) for i, shaped in enumerate(callee.inputs)]
    results = callee.run(arrays, "jax.ffi")
    for i, (shaped, result) in enumerate(zip(callee.outputs, results, strict=True)):
        np.copyto(_seen(frame.rets.buffers[i], shaped), result)


def _callee(frame: Any) -> Callee:
    key = _key(frame.attrs)
    callee = CALLEES.find(key)
    if callee is None:
        raise ExecutionError(
            "jax.unknown-kernel",
            f"an executable calls the compiled kernel {key[:12]}, which this process has not compiled",
            rule="an executable holds a reference to its kernels, not the kernels",
            fix="trace the function again in this process, on arrays of the same shapes",
        )
    if (frame.args.size, frame.rets.size) != (len(callee.inputs), len(callee.outputs)):
        raise ExecutionError(
            "jax.operands",
            f"{callee} got {frame.args.size} operands and {frame.rets.size} results, "
            f"and has {len(callee.inputs)} and {len(callee.outputs)}",
            fix="let a call of a kernel under jax.jit make the custom call",
        )
    return callee


def _key(attributes: Any) -> str:
    """The attribute ``klir_binary.binary``."""
    value: Any = None
    for position, name, kind in _BINARY:
        if value is not None:
            attributes = ctypes.cast(value, ctypes.POINTER(xla.Attributes)).contents
        known = attributes.size > position and attributes.types[position] == kind
        if not known or _bytes(attributes.names[position].contents) != name:
            raise ExecutionError(
                "jax.operands",
                f"a custom call to {TARGET} lacks the attribute {name.decode()}",
                fix="let a call of a kernel under jax.jit make the custom call",
            )
        value = attributes.values[position]
    return _bytes(ctypes.cast(value, ctypes.POINTER(xla.Span)).contents).decode("ascii")


def _bytes(span: Any) -> bytes:
    return ctypes.string_at(span.ptr, span.len)


def _seen(buffer: Any, shaped: Shaped) -> np.ndarray:
    """A buffer's memory as an array; it is valid during the call."""
    buffer = buffer.contents
    shape = tuple(buffer.dims[: buffer.rank])
    if shape != shaped.shape or buffer.dtype != shaped.number:
        raise ExecutionError(
            "jax.operands",
            f"a custom call to {TARGET} came with shape {shape} and dtype number {buffer.dtype}, "
            f"and its kernel was compiled for {shaped.shape} and {shaped.number}",
            fix="let a call of a kernel under jax.jit make the custom call",
        )
    memory = (ctypes.c_char * shaped.nbytes).from_address(buffer.data)
    return np.ndarray(shaped.shape, shaped.dtype, memoryview(memory))


def _failed(frame: Any, error: BaseException) -> int | None:
    """An error of XLA that carries ours as text."""
    try:
        text = FAILURES.text(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed is still one
        text = f"{type(error).__name__}, which cannot be printed"
    kind = xla.ERROR_FAILED_PRECONDITION if isinstance(error, NkiError) else xla.ERROR_INTERNAL
    message = text.encode("utf-8", "replace").replace(b"\0", b"?")
    arguments = xla.ErrorCreate(ctypes.sizeof(xla.ErrorCreate), None, message, kind)
    made: int | None = frame.api.contents.error_create(ctypes.byref(arguments))
    return made


@cache
def install() -> None:
    """Register the handler with XLA once, and note in `HANDSHAKE` whether kernels can be called through it.

    XLA takes handlers when its CPU client is made, perhaps later, and refuses that client if the version is wrong. So
    the handler is not even offered to an interface that is not known.
    """
    HANDSHAKE.version = declared_version()
    HANDSHAKE.problem = problem_with(HANDSHAKE.version, ctypes.sizeof(xla.CallFrame))
    if HANDSHAKE.problem:
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_handle))  # XLA keeps its address beyond the end of this module
    capsule = jax.ffi.pycapsule(ctypes.cast(_handle, ctypes.c_void_p).value)
    try:
        jax.ffi.register_ffi_target(TARGET, capsule, platform="cpu")
    except (RuntimeError, ValueError, TypeError) as error:
        HANDSHAKE.problem = f"XLA did not take the handler: {error}"
