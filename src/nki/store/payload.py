"""What the disk keeps of a compiled kernel beside its IR: the form of its results and the findings, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from nki.core.source import Frame, Location
from nki.core.tensor import View
from nki.spec.kept_load import KeptLoad
from nki.spec.rule import Finding


@dataclass(frozen=True, slots=True)
class Traced:
    """What one trace came to.

    Attributes:
        artifact: key of the compiled kernel.
        kernel_hash: hash of its IR.
        result: the tree that the kernel returned, with views in it.
        findings: warnings of the trace.
        written: positions of the inputs that some core writes to.
        outlines: of the programs, as `nki.store.outline` writes them; None if they have none.
        kept_loads: that the passes left out, because what they bring was there.
    """

    artifact: str
    kernel_hash: str
    result: Any
    findings: tuple[Finding, ...]
    written: frozenset[int] = frozenset()
    outlines: list[Any] | None = None
    kept_loads: tuple[KeptLoad, ...] = ()


def pack(traced: Traced) -> bytes | None:
    """A traced kernel as bytes; None if a result or a finding contains what has no JSON, such as a named tuple."""
    views = iter(range(1 << 62))
    try:
        document = {
            "artifact": traced.artifact,
            "kernel_hash": traced.kernel_hash,
            "result": tree_written(traced.result, views),
            "findings": [finding_written(finding, views) for finding in traced.findings],
            "written": sorted(traced.written),
            "outlines": traced.outlines,
            "kept_loads": [_kept_written(load) for load in traced.kept_loads],
        }
    except TypeError:
        return None
    return json.dumps(document, separators=(",", ":")).encode()


def unpack(data: bytes) -> Traced | None:
    """What `pack` made, with the number of an output in place of each view; None if it is something else."""
    try:
        document = json.loads(data)
        return Traced(
            str(document["artifact"]),
            str(document["kernel_hash"]),
            document["result"],
            tuple(finding_read(each) for each in document["findings"]),
            frozenset([int(position) for position in document["written"]]),
            document["outlines"],
            tuple(_kept_read(load) for load in document["kept_loads"]),
        )
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def result_of(written: Any, outputs: Sequence[View]) -> Any:
    """The tree of results, with the outputs of the program that was read from IR in it."""
    return tree_read(written, outputs)


def tree_written(value: Any, views: Iterator[int]) -> Any:
    """Views are numbered in the order in which the kernel's outputs were noted."""
    kind = type(value)
    if kind is View:
        return {"view": next(views)}
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [tree_written(item, views) for item in value]
    if kind is tuple:
        return {"tuple": [tree_written(item, views) for item in value]}
    if kind is dict or kind is MappingProxyType:
        return {"dict": [[tree_written(key, views), tree_written(item, views)] for key, item in value.items()]}
    raise TypeError(f"{kind.__qualname__} has no JSON")


def tree_read(written: Any, outputs: Sequence[View]) -> Any:
    """What `tree_written` wrote, with outputs in the places of their numbers."""
    match written:
        case list():
            return [tree_read(item, outputs) for item in written]
        case {"view": number}:
            return outputs[number]
        case {"tuple": items}:
            return tuple(tree_read(item, outputs) for item in items)
        case {"dict": items}:
            return {tree_read(key, outputs): tree_read(item, outputs) for key, item in items}
    return written


def finding_written(finding: Finding, views: Iterator[int]) -> dict[str, Any]:
    """A finding in JSON types. Raises TypeError for a fact that has none."""
    texts = ("code", "severity", "message", "rule", "source", "fix")
    return {
        **{name: str(getattr(finding, name)) for name in texts},
        "frames": _frames(finding.location),
        "facts": tree_written(dict(finding.facts), views),
    }


def finding_read(written: dict[str, Any]) -> Finding:
    """What `finding_written` wrote. Raises ValueError, KeyError or TypeError for anything else."""
    severity = written["severity"]
    if severity not in ("error", "warning"):
        raise ValueError(severity)
    return Finding(
        written["code"],
        severity,
        written["message"],
        written["rule"],
        written["source"],
        written["fix"],
        _location(written["frames"]),
        MappingProxyType(tree_read(written["facts"], ())),
    )


def _kept_written(load: KeptLoad) -> dict[str, Any]:
    return {**load._asdict(), "location": _frames(load.location), "earlier": _frames(load.earlier)}


def _kept_read(written: dict[str, Any]) -> KeptLoad:
    places = {name: _location(written[name]) for name in ("location", "earlier")}
    return KeptLoad(**{**written, **places})


def _frames(location: Location) -> list[dict[str, Any]]:
    return [asdict(frame) for frame in location.frames]


def _location(frames: list[dict[str, Any]]) -> Location:
    return Location(tuple(Frame(**frame) for frame in frames))
