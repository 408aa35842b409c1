"""``nki ir``: the compiled form of a kernel, for people or for MLIR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from nki.driver.compiled import Compiled
from nki.ir.build import build
from nki.ir.print import readable
from nki.ir.text import to_text
from nki.tools.output import echo, show_finding, working, write_json
from nki.tools.request import Request, compile_request, kernel_command, read_request, usage_error


@kernel_command("ir", short_help="Show the IR of a kernel.")
@click.option("--mlir", is_flag=True, help="Print MLIR, which reads back; else a form for people.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to a file instead of stdout.")
def command(
    kernel: str,
    args: tuple[str, ...],
    target: str | None,
    lnc: int | None,
    seed: int,
    as_json: bool,
    mlir: bool,
    output: Path | None,
) -> None:
    """Compile a kernel and show what would run, one program per core.

    With --json the text is a field, beside the hash of the IR.
    """
    if output is not None and not output.parent.is_dir():
        raise usage_error("output.directory", f"-o {output}: {output.parent} is no directory", "create it first")
    request = read_request(kernel, args, target, lnc, seed, as_json)
    with working(f"compiling {request.launch.name}"):
        compiled = compile_request(request, {})
        text = to_text(build(compiled.programs)) if mlir else readable(compiled.programs)
    if not as_json:
        for finding in compiled.findings:
            show_finding(finding)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        write_json(_json(request, compiled, "mlir" if mlir else "readable", text, output))
    elif output is None:
        echo(text, nl=not text.endswith("\n"))


def _json(request: Request, compiled: Compiled, form: str, text: str, output: Path | None) -> dict[str, Any]:
    return {
        "kernel": request.launch.name,
        "target": request.target.name,
        "kernel_hash": compiled.kernel_hash,
        "form": form,
        "text": text if output is None else None,
        "output": None if output is None else str(output),
        "findings": [finding.to_json() for finding in compiled.findings],
    }
