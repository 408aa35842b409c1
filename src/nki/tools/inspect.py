"""``nki inspect``: what is in a compiled file, and where it came from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from nki.asm.streams import Streams
from nki.store.artifact.container import load
from nki.store.artifact.contents import Artifact
from nki.store.artifact.header import MAJOR, MINOR
from nki.store.artifact.model import ModelPart
from nki.tools.output import Command, stdout, write_json
from nki.tools.request import JSON


@click.command("inspect", cls=Command, short_help="Show what is in a compiled file.")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.neff")
@JSON
def command(file: Path, as_json: bool) -> None:
    """Check a compiled file, and show its header, arguments, streams and provenance."""
    artifact = load(file)
    if as_json:
        write_json({"file": str(file), **_json(artifact)})
    else:
        _show(file, artifact)


def _json(artifact: Artifact) -> dict[str, Any]:
    header = artifact.header
    return {
        "version": f"{MAJOR}.{MINOR}",
        "hash": header.digest.hex(),
        "uuid": header.uuid.hex(),
        "features": header.features,
        **artifact.meta,
        **({} if artifact.model is None else {"model": _model_json(artifact.model)}),
        "streams": [_counts(streams) for streams in artifact.streams],
        "members": dict(artifact.sizes),
    }


def _model_json(model: ModelPart) -> dict[str, Any]:
    return {
        "name": model.name,
        "arguments": [{"name": p.name, "shape": list(p.shape), "dtype": p.dtype.name} for p in model.arguments],
        "outputs": [{"name": p.name, "shape": list(p.shape), "dtype": p.dtype.name} for p in model.outputs],
        "constants": len(model.constants),
        "constant_bytes": sum(array.nbytes for array in model.weights),
        "aliases": {str(result): argument for result, argument in model.aliases.items()},
        "report": dict(model.report),
    }


def _model_rows(model: ModelPart | None) -> list[tuple[str, str]]:
    if model is None:
        return []
    found = _model_json(model)
    aliases = ", ".join(f"{model.outputs[r].name} is {model.arguments[a].name}" for r, a in model.aliases.items())
    counts = [name for name in ("operations", "kernels", "distinct", "instructions") if name in model.report]
    return [
        ("model", model.name),
        ("takes", _tensors(found["arguments"])),
        ("gives", _tensors(found["outputs"])),
        ("constants", f"{found['constants']:,} with {found['constant_bytes']:,} bytes"),
        ("aliases", aliases or "none"),
        *((name, str(model.report[name])) for name in counts),
    ]


def _counts(streams: Streams) -> dict[str, dict[str, int]]:
    """Instructions by queue and opcode."""
    return {
        stream.queue: dict(sorted(Counter(item.opcode for item in stream.commands()).items()))
        for stream in streams.streams
    }


def _show(file: Path, artifact: Artifact) -> None:
    meta, out = artifact.meta, stdout()
    rows = [
        ("kernel", meta["name"]),
        ("target", f"{meta['target']}, {meta['cores']} core{'' if meta['cores'] == 1 else 's'}"),
        ("arguments", _tensors(meta["arguments"])),
        ("outputs", _tensors(meta["outputs"])),
        ("passes", ", ".join(meta["passes"]) or "none"),
        ("options", ", ".join(f"{name}={value}" for name, value in meta["options"].items()) or "none"),
        ("rules off", ", ".join(meta["disabled_rules"]) or "none"),
        ("written by", f"nki {meta['package_version']}, format {MAJOR}.{MINOR}"),
        ("kernel hash", meta["kernel_hash"]),
        ("IR hash", meta["ir_hash"]),
        ("file hash", artifact.header.digest.hex()),
        ("bytes", f"{sum(artifact.sizes.values()):,} in {len(artifact.sizes)} members of {file.name}"),
    ]
    if artifact.model is not None:  # the program's arguments are the model's and its constants
        rows = [row for row in rows if row[0] not in ("arguments", "outputs")]
        rows[1:1] = _model_rows(artifact.model)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        out.print(f"{name:{width}}  {value}")
    out.print(_table(artifact))


def _tensors(tensors: list[dict[str, Any]]) -> str:
    return ", ".join(f"{each['name']}: {each['dtype']}{each['shape']}" for each in tensors) or "none"


def _table(artifact: Artifact) -> Table:
    table = Table()
    for heading in ("core", "queue", "instructions", "waits", "bytes", "opcodes"):
        table.add_column(heading, justify="right" if heading in ("instructions", "waits", "bytes") else "left")
    for core, streams in enumerate(artifact.streams):
        for stream in streams.streams:
            counts = Counter(item.opcode for item in stream.commands())
            table.add_row(
                str(core),
                stream.queue,
                f"{counts.total():,}",
                f"{sum(len(item.waits) for item in stream.commands()):,}",
                f"{artifact.sizes[f'core{core}/{stream.queue}.bin']:,}",
                ", ".join(f"{name} {count}" for name, count in counts.most_common()),
            )
    return table
