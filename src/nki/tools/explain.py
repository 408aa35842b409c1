"""``nki explain``: what a code of an error, a warning or an advice means, and what to do about it."""

from __future__ import annotations

import re
from typing import Any

import click

from nki.core.catalogue import Explanation, close_codes
from nki.driver.prepare import chosen_target
from nki.target.model import Target
from nki.tools.codes import RuleEntry, all_codes
from nki.tools.options import options_of
from nki.tools.output import Command, echo, write_json
from nki.tools.request import JSON, TARGET, usage_error

_CODE = re.compile(r".*\[([\w.-]+)\].*", re.DOTALL)
"""A code as messages show it, with what stands around it."""


@click.command("explain", cls=Command, short_help="Explain a code of an error or of advice.")
@click.argument("code", required=False)
@TARGET
@JSON
def command(code: str | None, target: str | None, as_json: bool) -> None:
    """Explain the code of an error, a warning or an advice of `nki profile`; without CODE, list them all.

    Numbers in rules are those of the target: that of --target, else of NEURON_PLATFORM_TARGET_OVERRIDE, else trn3.
    """
    chip = chosen_target(target or "", options_of().target)
    if code is None:
        _list(chip, as_json)
        return
    code = _CODE.sub(r"\1", code)
    found = all_codes().get(code)
    if found is None:
        close = close_codes(code, all_codes())
        raise usage_error(
            "explain.code",
            f"there is no code {code!r}",
            f"perhaps {' or '.join(close)}" if close else "`nki explain` lists the codes",
        )
    if as_json:
        write_json(_json(code, found, chip))
    else:
        echo(_text(code, found, chip))


def _list(chip: Target, as_json: bool) -> None:
    if as_json:
        write_json([_json(code, found, chip) for code, found in all_codes().items()])
        return
    width = max(len(code) for code in all_codes())
    for code, found in all_codes().items():
        echo(f"{code:{width}}  {_title(found, chip)}")
    echo(f"numbers are those of {_numbers(chip)}")


def _numbers(chip: Target) -> str:
    """Which target the numbers are of, and how another one is chosen."""
    return f"{chip.name} (--target NAME shows another one's)"


def _title(found: Explanation | RuleEntry, chip: Target) -> str:
    return found.title if isinstance(found, Explanation) else found.sentence(chip)


def _json(code: str, found: Explanation | RuleEntry, chip: Target) -> dict[str, Any]:
    if isinstance(found, Explanation):
        return {
            "code": code,
            "title": found.title,
            "text": found.text,
            "wrong": found.wrong,
            "right": found.right,
        }
    return {
        "code": code,
        "instruction": found.instruction.name,
        "target": chip.name,
        "rule": found.sentence(chip),
        "severity": found.rule.severity,
        "source": found.rule.source,
        "fix": found.rule.fix.format(t=chip),
    }


def _text(code: str, found: Explanation | RuleEntry, chip: Target) -> str:
    if isinstance(found, RuleEntry):
        kind = "The kernel is refused" if found.rule.severity == "error" else "The kernel runs, with a warning,"
        return (
            f"{code}: {found.sentence(chip)}\n\n"
            f"A rule of nisa.{found.instruction.name}, with the numbers of {_numbers(chip)}. "
            f"{kind} where it does not hold.\n\n"
            f"  fix: {found.rule.fix.format(t=chip)}\n"
            f"  source: {found.rule.source}\n"
            f"  signature: nisa.{found.instruction.signature()}\n"
            f"  off switch: nki check --allow {code}, or NKI_DISABLE_RULES={code}"
        )
    parts = [f"{code}: {found.title}", found.text]
    for label, example in (("Wrong", found.wrong), ("Right", found.right)):
        if example:
            parts.append(f"{label}:\n\n" + "\n".join(f"    {line}" for line in example.splitlines()))
    return "\n\n".join(parts)
