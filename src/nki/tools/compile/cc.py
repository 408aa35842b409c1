"""``nki cc``: a model to a file that `nki run` runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from nki.core.errors import UsageError
from nki.core.regular import read_regular
from nki.core.source import UNKNOWN
from nki.tools.options import IMITATE_OPTION, options_of
from nki.tools.output import Command, stdout, working, write_json
from nki.tools.request import JSON, TARGET
from nki.tools.user_code import import_errors

if TYPE_CHECKING:
    from nki.graph.executable import Executable

_TEXT = (".mlir", ".mlirbc", ".stablehlo")


@click.command("cc", cls=Command, short_help="Compile a model to a file.")
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL.mlir|.pt2")
@TARGET
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.neff", help="Default: beside the model.")
@click.option("--dump-ir", type=click.Path(path_type=Path), metavar="DIR", help="Write every stage to DIR.")
@click.option("--resume", is_flag=True, help="MODEL is a stage that --dump-ir wrote: make those after it.")
@click.option("--lnc", type=click.IntRange(1), help="Cores that run the model together.  [default: 1]")
@click.option(
    "--patterns/--no-patterns",
    default=None,
    show_default="patterns",
    help="Let kernels that are written for them compute parts such as attention.",
)
@click.option(
    "--import",
    "imports",
    multiple=True,
    metavar="MODULE",
    help="Import MODULE, which defines operators or kernels that the model calls; may be repeated.",
)
@click.option("--name", help="Name of the model; default: that of the file.")
@IMITATE_OPTION
@JSON
def command(
    model: Path,
    target: str | None,
    output: Path | None,
    dump_ir: Path | None,
    resume: bool,
    lnc: int | None,
    patterns: bool | None,
    imports: tuple[str, ...],
    name: str | None,
    as_json: bool,
) -> None:
    """Compile a model for a target.

    MODEL is StableHLO as MLIR text, bytecode or a portable artifact (.mlir, .mlirbc, .stablehlo), or a program that
    torch.export.save wrote (.pt2), whose parameters become constants. Buffers that such a program changes become
    arguments, and their new values results; the output says which.

    Kernels in it are compiled again from their source, which --import names.
    """
    if model.suffix not in (*_TEXT, ".pt2") and not (resume and model.suffix == ".neff"):
        raise _error(f"{model} is no model", f"a model ends in {', '.join(_TEXT)} or .pt2", _model_fix(model))
    if not model.is_file():
        raise _error(f"{model} is no file", "the model is a file", "check the path")
    output = model.with_suffix(".neff") if output is None else output
    modules = [_imported(each) for each in imports]
    with working(f"compiling {model}"):
        changes = _changes(name, target, dump_ir, lnc, patterns)
        found = _resumed(model, changes) if resume else _compiled(model, changes, modules)
        found.save(output)
    if as_json:
        write_json({"output": str(output), "states": _states(found), **found.report.to_json()})
    else:
        states = [f"  {new} is the new value of {old}" for old, new in _states(found).items()]
        told = "\n".join([str(found.report), *states, f"written to {output}"])
        stdout().print(told, highlight=False, markup=False)


def _states(found: Executable) -> dict[str, str]:
    """Arguments whose memory a result takes, and these results, by name: what the next run is to be given."""
    return {found.arguments[old].name: found.outputs[new].name for new, old in found.aliases.items()}


def _changes(
    name: str | None, target: str | None, dump_ir: Path | None, lnc: int | None, patterns: bool | None
) -> dict[str, Any]:
    """The fields of `nki.graph.compile.Setting` that the command line says, and options of the environment."""
    given = {"name": name, "target": target, "dump_dir": dump_ir, "lnc": lnc}
    found: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    found["options"] = options_of("")
    return found if patterns is None else {**found, "patterns": None if patterns else frozenset()}


def _resumed(model: Path, changes: dict[str, Any]) -> Executable:
    """What the command line does not say is as it was when the stage was written."""
    made: Executable = importlib.import_module("nki.graph.resume").resume(model, **changes)
    return made


def _imported(name: str) -> ModuleType:
    """A module of the user, which may lie in the working directory."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with import_errors(name):
        return importlib.import_module(name)


def _compiled(model: Path, changes: dict[str, Any], modules: Sequence[ModuleType]) -> Executable:
    compiler = importlib.import_module("nki.graph.compile")
    setting = compiler.Setting(**{"name": model.stem, "target": options_of().target, **changes})
    made: Executable
    if model.suffix == ".pt2":
        made = _exported(model, compiler, setting)
    else:
        source = _source(model)
        mlir = importlib.import_module("nki.graph.stablehlo.mlir")
        signal = mlir.survives(source)
        if signal:
            raise mlir.unreadable(f"reading {model} ends a process by {signal}")
        records = importlib.import_module("nki.graph.stablehlo.read").read(source)
        kept = (
            importlib.import_module("nki.interop.common.exported_kernels").kernels_of(records, modules, setting)
            if modules
            else []
        )
        made = compiler.compile_module(records, setting)
        del kept  # the program has copies of the kernels
    return made


def _exported(model: Path, compiler: Any, setting: Any) -> Executable:
    """A program of torch.export, with the bodies of operators that imported modules made."""
    read = importlib.import_module("nki.graph.importers.torch.exported_program").read_exported
    if "nki.interop.torch" not in sys.modules:
        found: Executable = compiler.compile_module(read(model), setting)
        return found
    calls = importlib.import_module("nki.interop.torch.compile.kernel_calls")
    kernels = calls.Kernels()  # which keeps them until the model is compiled
    found = compiler.compile_module(read(model, calls.bodies(), kernels.converters, calls.open_writers), setting)
    return found


def _source(path: Path) -> str | bytes:
    """Text, or bytes of one of the binary forms, which start with their own letters."""
    try:
        data = read_regular(path)
        return data if data.startswith((b"ML\xefR", b"StableHLO_")) else data.decode()
    except OSError as problem:
        raise _error(f"{path} cannot be read: {problem.strerror}", "the model is a file", "check the path") from None
    except UnicodeDecodeError:
        rule = "a model is MLIR as UTF-8 text, bytecode or a portable artifact"
        raise _error(f"{path} is neither text nor bytecode", rule, "export the model again") from None


def _model_fix(path: Path) -> str:
    if path.suffix == ".py":
        return (
            f"export the model to a .pt2 file; `nki compile {path} --emit neff -o {path.stem}.neff` compiles a kernel"
        )
    if path.suffix == ".neff":
        return f"it is compiled already: `nki run {path}` runs it"
    return "export the model: torch.export.save(..., 'model.pt2'), or the text of jax.jit(f).lower(...) as model.mlir"


def _error(message: str, rule: str, fix: str) -> UsageError:
    return UsageError("cc.model", message, rule=rule, fix=fix, location=UNKNOWN)
