"""``nki migrate``: rewrite old kernels in today's language, and prove that nothing changed."""

from __future__ import annotations

import difflib
import importlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nki.core.errors import UsageError
from nki.core.install import install_extra
from nki.core.source import UNKNOWN
from nki.driver.prepare import chosen_target
from nki.tools.arguments import FORMS, parse_arguments
from nki.tools.options import options_of
from nki.tools.output import REFUSED, Command, echo, quiet_stdout, write_json
from nki.tools.request import JSON, TARGET
from nki.tools.user_code import import_errors

if TYPE_CHECKING:
    from nki.tools.migrate.whole import Whole


@dataclass(frozen=True)
class File:
    """One file of the command line.

    Attributes:
        old: its text.
        whole: what became of it.
    """

    path: Path
    old: str
    whole: Whole

    @property
    def new(self) -> str:
        return self.whole.text.new

    @property
    def complete(self) -> bool:
        """Whether everything was rewritten, and gives equal bits."""
        if self.whole.text.left or self.whole.broken:
            return False
        return all(proof.equal for proof in self.whole.proofs.values())


@click.command("migrate", cls=Command, short_help="Rewrite old kernels in today's language.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Print what would change, as a unified diff.")
@click.option("--in-place", is_flag=True, help="Write the new text into the files.")
@click.option("--arg", "args", multiple=True, metavar="NAME=VALUE", help=f"Example arguments: {FORMS}")
@click.option(
    "--args-from",
    "script",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="A script, or a file of tests, that calls the kernels: with its smallest call of each.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random arrays.")
@TARGET
@JSON
def command(
    files: tuple[Path, ...],
    check: bool,
    diff: bool,
    in_place: bool,
    args: tuple[str, ...],
    script: Path | None,
    seed: int,
    target: str | None,
    as_json: bool,
) -> None:
    """Rewrite old kernels in today's language: those of the first NKI (neuronxcc.nki), and of NKI 0.2 to 0.6.

    The file is executed: each kernel is traced with example arguments, those of the file's own calls, of --args-from
    or --arg, or made-up ones. The new kernel is traced with the same ones; it must issue the same instructions, or give
    the same bits. What cannot be rewritten stays, with a comment that begins with `# nki migrate:`.

    Without --check, --diff, --in-place and --json the new text is printed.

    Exit code 0: everything was rewritten and compared. 1: something was left or could not be compared, or with --check,
    a file would change. 2: the command was used wrongly.
    """
    if check and in_place:
        raise UsageError(
            "command.usage", "--check and --in-place exclude each other", fix="omit one of them", location=UNKNOWN
        )
    texts = [_text(path) for path in files]
    given = parse_arguments(args, seed)
    with quiet_stdout(as_json):
        found = [_migrated(path, text, given, target, script) for path, text in zip(files, texts, strict=True)]
    if in_place:
        for file in found:
            _write(file)
    if as_json:
        write_json([_json(file) for file in found])
    else:
        for file in found:
            _show(file, text=not (check or diff or in_place), diff=diff)
    changes = any(file.new != file.old for file in found)
    if (check and changes) or not all(file.complete for file in found):
        raise click.exceptions.Exit(REFUSED)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(
            "migrate.file",
            f"{path} cannot be read: {problem}",
            rule="nki migrate takes Python files",
            fix="check the path",
            location=UNKNOWN,
        ) from problem


def _migrated(path: Path, text: str, given: dict[str, Any], target: str | None, script: Path | None) -> File:
    try:
        whole = importlib.import_module("nki.tools.migrate.whole")
    except ModuleNotFoundError as problem:
        if problem.name != "libcst":
            raise
        raise UsageError(
            "migrate.extra", "nki migrate needs libcst", fix=install_extra("migrate"), location=UNKNOWN
        ) from problem
    try:
        compile(text, str(path), "exec")
    except SyntaxError as problem:
        raise UsageError(
            "migrate.syntax",
            f"{path}:{problem.lineno} is no Python: {problem.msg}",
            rule="only what Python reads can be rewritten",
            fix="correct the file first",
            location=UNKNOWN,
        ) from problem
    options = options_of()
    with import_errors(str(path)):
        found = whole.migrate_file(path, given, chosen_target(target or "", options.target, ""), options, script)
    return File(path, text, found)


def _write(file: File) -> None:
    """Replace a file at once."""
    if file.new == file.old:
        return
    place = file.path.resolve()
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(file.new)
        os.chmod(temporary, place.stat().st_mode & 0o7777)
        Path(temporary).replace(place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _diff(file: File) -> str:
    lines = difflib.unified_diff(
        file.old.splitlines(True), file.new.splitlines(True), f"a/{file.path}", f"b/{file.path}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _show(file: File, *, text: bool, diff: bool) -> None:
    if text:
        click.echo(file.new, nl=False)
    if diff:
        click.echo(_diff(file), nl=False)
    for line in _report(file):
        echo(line, err=True)


def _report(file: File) -> Sequence[str]:
    if file.new == file.old and not file.whole.text.left:
        return [f"{file.path}: nothing to do"]
    lines = []
    for name, proof in file.whole.proofs.items():
        words = {True: "equal", False: "not equal", None: "not compared"}[proof.equal]
        call = file.whole.calls.get(name)
        lines.append(f"{file.path}::{name}: {words}: {proof.how}" + (f", {call.how}" if call is not None else ""))
        lines += [f"  {error}" for error in proof.errors]
    lines += [f"{file.path}:{failed.line}: it cannot be executed here: {failed.reason}" for failed in file.whole.failed]
    lines += [f"{file.path}: line {each.line} of the new text raises {each.reason}" for each in file.whole.broken]
    lines += [f"{file.path}:{left.line}: left as it was: {left.reason}" for left in file.whole.text.left]
    return lines


def _json(file: File) -> dict[str, Any]:
    return {
        "file": str(file.path),
        "changed": file.new != file.old,
        "complete": file.complete,
        "kernels": [
            {
                "name": name,
                "equal": proof.equal,
                "how": proof.how,
                "errors": list(proof.errors),
                "arguments": file.whole.calls[name].how if name in file.whole.calls else None,
            }
            for name, proof in file.whole.proofs.items()
        ],
        "failed": [{"line": failed.line, "reason": failed.reason} for failed in file.whole.failed],
        "broken": [{"line": each.line, "reason": each.reason} for each in file.whole.broken],
        "left": [{"line": left.line, "reason": left.reason} for left in file.whole.text.left],
        "diff": _diff(file),
    }
