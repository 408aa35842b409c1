"""``nki targets``: what is known about each hardware generation, and where every number comes from."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from nki.target.load import DEFAULT_TARGET, load_target, target_names
from nki.target.model import Provenance, Target
from nki.tools.output import Command, stdout, write_json
from nki.tools.request import JSON


@click.command("targets", cls=Command, short_help="Show hardware data.")
@click.argument("name", required=False)
@JSON
def command(name: str | None, as_json: bool) -> None:
    """List the targets, or show every number of one with its source document; estimates are marked."""
    if name is not None:
        _one(load_target(name), as_json)
        return
    found = [load_target(each) for each in target_names()]
    if as_json:
        write_json([_summary(target) for target in found])
        return
    table = Table()
    for heading in ("target", "aliases", "chip", "SBUF", "PSUM", "cores (LNC)", "bf16", "timing", "estimates"):
        table.add_column(heading)
    for target in found:
        table.add_row(*_row(target))
    stdout().print(table)


def _row(target: Target) -> tuple[str, ...]:
    return (
        target.name + (" (default)" if target.name == DEFAULT_TARGET else ""),
        ", ".join(target.aliases),
        target.title,
        f"{target.partitions} x {target.sbuf.bytes_per_partition // 1024} KiB",
        f"{target.partitions} x {target.psum.bytes_per_partition // 1024} KiB",
        " or ".join(str(count) for count in target.lnc),
        f"{target.peak.tensor_bf16_tflops:g} TFLOPS",
        "validated" if target.validated else "not validated",
        f"{_estimates(target)} of {len(list(target.leaves()))}",
    )


def _estimates(target: Target) -> int:
    return sum(bool(leaf.estimate) for _, leaf in target.leaves())


def _summary(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "title": target.title,
        "aliases": list(target.aliases),
        "default": target.name == DEFAULT_TARGET,
        "timing_validated": target.validated,
        "estimates": _estimates(target),
        "values": len(list(target.leaves())),
    }


def _one(target: Target, as_json: bool) -> None:
    if as_json:
        write_json({**_summary(target), "values": {path: _leaf(leaf) for path, leaf in target.leaves()}})
        return
    table = Table(title=target.title, title_justify="left")
    for heading in ("value", "", "source", "note"):
        table.add_column(heading, overflow="fold")
    for path, leaf in target.leaves():
        table.add_row(path, _value(leaf.value), leaf.source or f"estimate: {leaf.estimate}", leaf.note)
    stdout().print(table)


def _leaf(leaf: Provenance) -> dict[str, Any]:
    parts = {"source": leaf.source, "estimate": leaf.estimate, "note": leaf.note}
    return {"value": leaf.value, **{key: text for key, text in parts.items() if text}}


def _value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case tuple():
            return ", ".join(_value(item) if not isinstance(item, tuple) else f"({_value(item)})" for item in value)
    return str(value)
