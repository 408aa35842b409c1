"""``nki disasm``: what each queue of a compiled kernel does, as assembly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nki.asm.lower import lower
from nki.asm.print import entry_text, stream_lines, to_text
from nki.asm.streams import Command, Entry, Streams, semaphore_of
from nki.ir.read import read
from nki.ir.text import load as load_ir
from nki.ir.verify import verify_structure
from nki.store.artifact.container import load as load_artifact
from nki.tools.output import Command as CliCommand
from nki.tools.output import echo, write_json
from nki.tools.request import JSON, usage_error


@click.command("disasm", cls=CliCommand, short_help="Show what each queue of a compiled kernel does.")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.neff|FILE.mlir")
@click.option("--queue", metavar="NAME", help="Only this queue, for example vector or dma0.")
@JSON
def command(file: Path, queue: str | None, as_json: bool) -> None:
    """Print the instruction streams of a compiled file, or of IR that went through the compiler.

    All queues of one core together are assembly that reads back (docs/assembly.md).
    """
    if queue is not None and semaphore_of(queue) is None:
        raise usage_error("disasm.queue", f"--queue {queue}", "name an engine, or a DMA queue such as dma0")
    cores = _streams(file)
    if as_json:
        write_json({"file": str(file), "cores": [_json(streams, queue) for streams in cores]})
    elif queue is None:
        echo("\n".join(to_text(streams) for streams in cores), nl=False)
    else:
        echo("\n".join(line for streams in cores for line in _only(streams, queue)))


def _streams(file: Path) -> Sequence[Streams]:
    if file.suffix != ".mlir":
        return load_artifact(file).streams
    module = load_ir(file)
    verify_structure(module)
    return [lower(program) for program in read(module)]


def _only(streams: Streams, queue: str) -> list[str]:
    found = streams.of(queue)
    head = f"core {streams.core} of {streams.cores}, queue {queue}"
    return [f"{head}: idle"] if found is None else [f"{head}:", *stream_lines(streams, found)]


def _json(streams: Streams, queue: str | None) -> dict[str, Any]:
    return {
        "kernel": streams.name,
        "target": streams.target,
        "core": streams.core,
        "queues": {
            stream.queue: [_entry(streams, entry) for entry in stream.entries]
            for stream in streams.streams
            if queue in (None, stream.queue)
        },
    }


def _entry(streams: Streams, entry: Entry) -> dict[str, Any]:
    text = entry_text(streams, entry)
    if not isinstance(entry, Command):
        return {"kind": type(entry).__name__.lower(), "loop": entry.loop, "text": text}
    return {
        "kind": "instruction",
        "position": entry.position,
        "opcode": entry.opcode,
        "engine": entry.engine,
        "waits": [{"queue": wait.queue, "signals": wait.count} for wait in entry.waits],
        "signals": entry.signals,
        "text": text,
        "location": streams.locations[entry.location].to_json(),
    }
