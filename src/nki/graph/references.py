"""Compiled kernels of the user that a model's custom calls name: the registry that importers fill."""

from __future__ import annotations

import base64
import binascii
import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nki.core.locks import lock
from nki.core.source import Location
from nki.graph.errors import GraphError
from nki.graph.ir import Op
from nki.spec.program import Program

TARGET = "AwsNeuronCustomNativeKernel"
"""Target of the custom call (nki/guides/framework_custom_op.rst)."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Reference:
    """A compiled kernel.

    Attributes:
        key: what the custom call's ``klir_binary`` names.
        name: of the kernel.
        programs: one for each core; arguments are the operands, outputs the results.
    """

    key: str
    name: str
    programs: tuple[Program, ...]


_LOCK = lock()
_REFERENCES: weakref.WeakValueDictionary[str, Reference] = weakref.WeakValueDictionary()
"""The kernels that models of this process name; each goes when nobody keeps what `register` returned."""


def register(key: str, name: str, programs: tuple[Program, ...]) -> Reference:
    """Make a compiled kernel known as long as somebody keeps what is returned.

    A model that was compiled needs it no longer, because its program holds a copy.
    """
    with _LOCK:
        found = _REFERENCES.get(key)
        if found is None:
            found = _REFERENCES[key] = Reference(key, name, programs)
        return found


def is_reference(op: Op) -> bool:
    """Whether an operation calls a compiled kernel of the user."""
    return op.name == "custom_call" and op.attributes.get("call_target_name") == TARGET


def reference_of(op: Op) -> Reference:
    """The kernel that a custom call names.

    Raises:
        GraphError: "graph.reference" for a configuration that is not the documented one, or a kernel that this process
            does not know.
    """
    key, name = _named(op)
    with _LOCK:
        found = _REFERENCES.get(key)
    if found is None:
        raise _error(
            f"the custom call names kernel {name or '?'} ({key[:16]}), which this process has not compiled", op.location
        )
    return found


def _named(op: Op) -> tuple[str, str]:
    """The key of the compiled kernel and the name of its function, from base64 of JSON or from a mapping."""
    config = op.attributes.get("backend_config", "")
    try:
        fields: Any = config if isinstance(config, Mapping) else json.loads(base64.b64decode(config, validate=True))
        return str(fields["klir_binary"]["binary"]), str(fields.get("func_name", ""))
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise _error(f"its backend_config cannot be read ({type(error).__name__})", op.location) from None


def _error(message: str, where: Location) -> GraphError:
    return GraphError(
        "graph.reference",
        f"{TARGET}: {message}",
        rule="a custom call names a kernel that was compiled in the same process, or one that is in the dump",
        source="nki/guides/framework_custom_op.rst",
        fix="name the module that defines the kernel (nki cc --import MODULE), or trace the model in this process",
        location=where,
    )
