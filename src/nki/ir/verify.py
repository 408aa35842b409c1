"""Verification of a module: MLIR's own, what the dialects' files must be, and the rules of the declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nki.core.errors import IRError, VerificationError
from nki.core.source import Location
from nki.ir.context import session
from nki.ir.locations import read_location
from nki.ir.mlir import MLIRError, Module
from nki.ir.read import read
from nki.spec.program import Program
from nki.spec.rule import Finding, error_of
from nki.spec.verify_program import verify_program
from nki.target.model import Target


def verify(module: Module, target: Target, disabled: frozenset[str] = frozenset()) -> list[Program]:
    """Refuse a module that is not valid for a target; returns the programs that were read and checked.

    It is one pass over the module, not a verifier on each operation, which MLIR would run again and again.

    Args:
        disabled: codes of rules that are not checked.

    Raises:
        IRError: "ir.verify" with MLIR's message, "ir.target" if it was compiled for another target, or what `read`
            raises.
        VerificationError: the first broken rule, at the kernel's line.
    """
    verify_structure(module)
    programs = read(module)
    for finding in broken_rules(programs, target, disabled):
        if finding.severity == "error":
            raise error_of(finding, VerificationError)
    return programs


def verify_structure(module: Module) -> None:
    """MLIR's verifier: types, attributes, terminators, and that every value is defined before it is used."""
    with session(module.context):
        try:
            module.operation.verify()
        except MLIRError as error:
            raise ir_error("ir.verify", error) from None


def broken_rules(programs: Sequence[Program], target: Target, disabled: frozenset[str]) -> Iterator[Finding]:
    """Findings of all instructions, in order."""
    for program in programs:
        if program.target != target.name:
            raise IRError(
                "ir.target",
                f"kernel {program.name} was compiled for {program.target}, and is checked for {target.name}",
                rule="a compiled kernel belongs to one target",
                fix=f"compile it for {target.name}, or use {program.target}",
                location=program.location,
            )
        yield from verify_program(program, target, disabled)


def ir_error(code: str, error: MLIRError) -> IRError:
    """MLIR's first diagnostic, at the place that it names."""
    diagnostics = list(error.error_diagnostics)
    location = read_location(diagnostics[0].location) if diagnostics else Location()
    message = diagnostics[0].message if diagnostics else str(error)
    notes = [note.message for diagnostic in diagnostics[:1] for note in diagnostic.notes]
    return IRError(
        code,
        "; ".join([message, *notes]),
        rule="a module is valid MLIR of the dialects nki and nisa",
        fix="compile the kernel again, or correct the file",
        location=location,
    )
