"""The verifier for whole programs: what differs only in where operands lie is looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.spec.signature import Key, Seen, add
from nki.spec.verify import verify
from nki.target.model import Target


def verify_program(program: Program, target: Target, disabled: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """The broken rules of all instructions of a program, in order; see `verify`.

    Args:
        disabled: codes of rules that are not checked.
    """
    legal: set[Key] = set()
    for issued in program.body.walk():
        key: list[Any] = [issued.instruction, issued.engine]
        seen: Seen = {}
        static = all([add(key, value, seen) for value in issued.arguments])
        signature = tuple(key)
        if static and signature in legal:
            continue
        findings = verify(issued, target, disabled)
        yield from findings
        if static and not findings:
            legal.add(signature)
