"""The JSON in an artifact: what the kernel is and came from, and where its instructions are in the source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from nki.asm.assemble import AssembledLoop, QueuedInstruction, Tree, assembled
from nki.asm.streams import Streams
from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN
from nki.core.tensor import View, whole
from nki.spec.instruction import REGISTRY
from nki.spec.program import Program
from nki.store.artifact.validate_hardware import dependencies

FORMAT = 1
Option = str | int | float | bool | None
_MAX_TEXT = 4096
_MAX_OPTIONS = 256


@dataclass(frozen=True, slots=True)
class Provenance:
    """What an artifact says of its origin, which nothing else in it repeats.

    Attributes:
        package_version: of this package.
        kernel_hash: hash of the traced kernel, 64 hexadecimal digits.
        options: settings of the compiler by name.
        disabled_rules: codes of rules that were not checked.
    """

    package_version: str
    kernel_hash: str
    options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}))
    disabled_rules: tuple[str, ...] = ()


def meta_of(programs: Sequence[Program], ir_hash: str, origin: Provenance) -> dict[str, Any]:
    """``meta.json``: all but the origin follows from the programs."""
    first = programs[0]
    return {
        "format": FORMAT,
        "name": first.name,
        "target": first.target,
        "cores": len(programs),
        "arguments": [{"name": buffer.name, **_shape(whole(buffer))} for buffer in first.inputs],
        "outputs": [{"name": view.buffer.name, **_shape(view)} for view in first.outputs],
        "passes": list(first.passed),
        "ir_hash": ir_hash,
        "package_version": origin.package_version,
        "kernel_hash": origin.kernel_hash,
        "options": dict(origin.options),
        "disabled_rules": list(origin.disabled_rules),
    }


def origin_of(meta: Mapping[str, Any]) -> Provenance:
    """The part of ``meta.json`` that follows from nothing else.

    Raises:
        ArtifactError: "artifact.meta" if a field is missing or of another type.
    """
    version, kernel_hash, options, rules = (
        _field(meta, name, kind)
        for name, kind in (("package_version", str), ("kernel_hash", str), ("options", dict), ("disabled_rules", list))
    )
    if len(kernel_hash) != 64 or set(kernel_hash) - set("0123456789abcdef"):
        raise refused("artifact.meta", f"kernel_hash {kernel_hash!r}"[:200], "it is 64 hexadecimal digits")
    if len(options) > _MAX_OPTIONS or not all(value is None or _is_scalar(value) for value in options.values()):
        raise refused("artifact.meta", f"options {options!r}"[:200], f"they are up to {_MAX_OPTIONS} plain values")
    texts = [version, *options, *(text for text in options.values() if isinstance(text, str)), *rules]
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in texts) or len(rules) > _MAX_OPTIONS:
        raise refused("artifact.meta", "a text in meta.json", f"it is a string of up to {_MAX_TEXT} characters")
    return Provenance(version, kernel_hash, MappingProxyType(options), tuple(rules))


def debug_of(streams: Sequence[Streams]) -> dict[str, Any]:
    """``debug.json``: for each core the source map, the names, and who waits for whom."""
    return {"format": FORMAT, "cores": [_core(core) for core in streams]}


def to_json(value: Any) -> bytes:
    """The one way in which JSON is written here."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def from_json(name: str, data: bytes) -> dict[str, Any]:
    """An object that `to_json` wrote.

    Raises:
        ArtifactError: "artifact.json".
    """
    try:
        value = json.loads(data)
        same = to_json(value) == data
    except (ValueError, RecursionError) as error:
        raise refused("artifact.json", f"{name}: {type(error).__name__}", "it is JSON") from None
    if not same or not isinstance(value, dict):
        raise refused("artifact.json", f"{name} is written in another way", "each value is written in one way")
    return value


def refused(code: str, message: str, rule: str) -> ArtifactError:
    """The error for a file that is not what `save` writes."""
    return ArtifactError(code, message, rule=rule, fix="compile the kernel again", location=UNKNOWN)


def _shape(view: View) -> dict[str, Any]:
    return {"shape": list(view.shape), "dtype": view.dtype.name}


def _field(meta: Mapping[str, Any], name: str, kind: type) -> Any:
    if type(meta.get(name)) is not kind:
        raise refused("artifact.meta", f"{name} is {meta.get(name)!r}"[:200], f"it is of type {kind.__name__}")
    return meta[name]


def _is_scalar(value: Any) -> bool:
    return type(value) in (str, int, float, bool)


def _core(streams: Streams) -> dict[str, Any]:
    tree = assembled(streams)
    symbols = zip(streams.symbols, streams.buffers, strict=True)
    return {
        "locations": [location.to_json() for location in streams.locations],
        "buffers": [{"symbol": s, "name": b.name, "location": b.location} for s, b in symbols],
        "instructions": list(_instructions(tree)),
        "dependencies": [list(pair) for pair in dependencies(tree)],
        "edges": [list(edge) for edge in streams.edges],
    }


def _instructions(tree: Tree) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for node in tree:
        if isinstance(node, AssembledLoop):
            found += _instructions(node.body)
            continue
        command = node.command
        found.append(
            {
                "position": command.position,
                "queue": node.queue,
                "opcode": command.opcode,
                "name": _name(node),
                "location": command.location,
            }
        )
    return found


def _name(leaf: QueuedInstruction) -> str | None:
    """What the kernel calls the instruction."""
    names = list(REGISTRY[leaf.command.opcode].operands)
    if "name" not in names:
        return None
    value = getattr(leaf.command.operands[names.index("name")], "value", 0)
    return value if isinstance(value, str) else None
