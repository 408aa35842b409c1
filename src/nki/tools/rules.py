"""``nki rules``: the rule book of a target, read from the declarations that the checker uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.table import Table

from nki.spec.instruction import REGISTRY, Instruction
from nki.spec.operand import Operand
from nki.target.load import DEFAULT_TARGET, load_target
from nki.target.model import Target
from nki.tools.codes import RuleEntry
from nki.tools.output import Command, echo, stdout, write_json
from nki.tools.request import JSON


@dataclass(frozen=True, slots=True)
class Row:
    """One rule of one instruction."""

    instruction: str
    code: str
    sentence: str
    severity: str
    source: str


@click.command("rules", cls=Command, short_help="Print the rule book of a target.")
@click.option("--target", metavar="NAME", default=DEFAULT_TARGET, show_default=True, help="Target, for example trn2.")
@click.option("--markdown", is_flag=True, help="Print Markdown.")
@JSON
def command(target: str, markdown: bool, as_json: bool) -> None:
    """Print what every instruction must satisfy on a target, with the document that says so."""
    chip = load_target(target)
    rows = list(rule_book(chip))
    if as_json:
        write_json({"target": chip.name, "rules": [asdict(row) for row in rows]})
    elif markdown:
        echo(_markdown(chip, rows))
    else:
        _show(chip, rows)


def rule_book(target: Target) -> Iterator[Row]:
    """Availability, operands and rules of every public instruction."""
    for declared in sorted(REGISTRY.values(), key=lambda item: item.name):
        if not declared.public:
            continue
        if declared.feature and not target.has(declared.feature):
            yield Row(
                declared.name, "instruction.unavailable", f"does not exist on {target.name}", "error", declared.source
            )
            continue
        yield from _engines(declared)
        for name, operand in declared.operands.items():
            yield from _operand(declared, name, operand)
        for rule in declared.rules:
            entry = RuleEntry(declared, rule)
            yield Row(declared.name, entry.code, entry.sentence(target), rule.severity, rule.source)


def _engines(declared: Instruction[Any]) -> Iterator[Row]:
    if declared.engines:
        names = ", ".join(engine.name for engine in declared.engines)
        yield Row(declared.name, "instruction.engine", f"runs on {names}", "error", declared.source)


def _operand(declared: Instruction[Any], name: str, operand: Operand) -> Iterator[Row]:
    if not operand.is_tensor:
        return
    regions = " or ".join(str(region) for region in operand.regions)
    yield Row(declared.name, "operand.region", f"{name} is in {regions}", "error", declared.source)
    if operand.dtypes is not None:
        dtypes = ", ".join(dtype.name for dtype in operand.dtypes)
        yield Row(declared.name, "operand.dtype", f"{name} is one of {dtypes}", "error", declared.source)


def _markdown(chip: Target, rows: list[Row]) -> str:
    lines = [
        f"# Rules for {chip.name}",
        "",
        "| instruction | code | rule | severity | source |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (row.instruction, f"`{row.code}`", row.sentence, row.severity, row.source)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _show(chip: Target, rows: list[Row]) -> None:
    table = Table(title=f"Rules for {chip.name}", title_justify="left")
    for heading in ("instruction", "code", "rule", "severity", "source"):
        table.add_column(heading, overflow="fold")
    before = ""
    for row in rows:
        table.add_row(
            row.instruction if row.instruction != before else "", row.code, row.sentence, row.severity, row.source
        )
        before = row.instruction
    stdout().print(table)
