"""``nki ls``: the simulated devices of each target, their cores and memory."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from nki.runtime.api import Runtime
from nki.target.load import DEFAULT_TARGET, load_target, target_names
from nki.target.model import Target
from nki.tools.output import Command, stdout, write_json
from nki.tools.request import JSON


@click.command("ls", cls=Command, short_help="Show the simulated devices.")
@click.option("--target", metavar="NAME", help="Only this one.")
@JSON
def command(target: str | None, as_json: bool) -> None:
    """List the devices that models can be loaded on: everything is simulated on this machine."""
    found = [load_target(name) for name in ([target] if target else target_names())]
    if as_json:
        write_json([_json(each) for each in found])
        return
    table = Table()
    for heading in ("target", "chip", "cores", "device memory", "in stacks", "cores per stack"):
        table.add_column(heading)
    for each in found:
        table.add_row(
            each.name + (" (default)" if each.name == DEFAULT_TARGET else ""),
            f"{each.title} (simulated)",
            str(each.cores_per_device),
            f"{each.hbm.bytes / 2**30:g} GiB",
            f"{each.hbm.stacks} x {each.hbm.bytes_per_stack / 2**30:g} GiB",
            str(each.hbm.cores_per_stack),
        )
    stdout().print(table)


def _json(target: Target) -> dict[str, Any]:
    with Runtime(target.name) as runtime:
        cores = [
            {"core": core.core, "memory": core.memory, "capacity_bytes": core.capacity, "used_bytes": core.used}
            for core in runtime.state()
        ]
    return {
        "target": target.name,
        "chip": target.title,
        "simulated": True,
        "default": target.name == DEFAULT_TARGET,
        "hbm_bytes": target.hbm.bytes,
        "cores": cores,
    }
