"""The C structures of XLA's foreign function interface, from lists of their fields (``xla/ffi/api/c_api.h``)."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

VERSIONS = frozenset({(0, 3)})
"""Versions of the interface whose structures are those of this file."""

EXTENSION_METADATA = 1
STAGE_EXECUTE = 3
ATTRIBUTE_DICTIONARY, ATTRIBUTE_STRING = 2, 4
ERROR_FAILED_PRECONDITION, ERROR_INTERNAL = 9, 13

DTYPES = {
    "bool": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "uint8": 6,
    "uint16": 7,
    "uint32": 8,
    "float16": 10,
    "float32": 11,
    "bfloat16": 16,
    "float8_e5m2": 19,
    "float8_e4m3fn": 20,
    "float8_e4m3": 28,
    "float8_e8m0fnu": 33,
}
"""XLA's numbers of the dtypes that kernels share with JAX, by the name that NumPy has for them."""


def _structure(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


# Every structure that may grow begins with its size and a list of extensions.
_HEAD = (("struct_size", c_size_t), ("extension_start", c_void_p))

Extension = _structure("Extension", ("struct_size", c_size_t), ("type", c_int), ("next", c_void_p))
Version = _structure("Version", *_HEAD, ("major_version", c_int), ("minor_version", c_int))
Metadata = _structure(
    "Metadata", ("struct_size", c_size_t), ("api_version", Version), ("traits", c_uint32), ("state_type_id", c_int64)
)
MetadataExtension = _structure("MetadataExtension", ("extension_base", Extension), ("metadata", POINTER(Metadata)))

Buffer = _structure(
    "Buffer", *_HEAD, ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64))
)
Span = _structure("Span", ("ptr", c_void_p), ("len", c_size_t))
Arguments = _structure(
    "Arguments", *_HEAD, ("size", c_int64), ("types", POINTER(c_int)), ("buffers", POINTER(POINTER(Buffer)))
)
Attributes = _structure(
    "Attributes",
    *_HEAD,
    ("size", c_int64),
    ("types", POINTER(c_int)),
    ("names", POINTER(POINTER(Span))),
    ("values", POINTER(c_void_p)),
)

ErrorCreate = _structure("ErrorCreate", *_HEAD, ("message", c_char_p), ("errc", c_int))
ERROR_CREATE = ctypes.CFUNCTYPE(c_void_p, POINTER(ErrorCreate))
"""Type of the interface's function that makes an error; whoever gets the error from a handler destroys it."""

# The table goes on with functions that handlers here do not call.
Api = _structure("Api", *_HEAD, ("api_version", Version), ("internal_api", c_void_p), ("error_create", ERROR_CREATE))
CallFrame = _structure(
    "CallFrame",
    *_HEAD,
    ("api", POINTER(Api)),
    ("ctx", c_void_p),
    ("stage", c_int),
    ("args", Arguments),
    ("rets", Arguments),
    ("attrs", Attributes),
)
HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(CallFrame))
"""Type of a handler: it returns NULL or an error."""
