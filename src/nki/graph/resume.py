"""A model taken up again at a file of a folder of dumps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nki.core.errors import UsageError
from nki.core.regular import read_regular
from nki.core.source import UNKNOWN
from nki.graph.compile import IMPORTED, LINKED, NEFF, REFERENCE, SETTING, GraphCompilation, Setting
from nki.graph.executable import Executable
from nki.graph.passes.pipeline import STAGES
from nki.graph.references import Reference, register
from nki.graph.stablehlo.read import read
from nki.ir.read import read as read_programs
from nki.ir.text import from_text
from nki.options import Options
from nki.passes.check_races import refuse_races
from nki.runtime.model import load_model, model_of
from nki.runtime.spans import span
from nki.store.artifact import container
from nki.store.artifact.validate import unpack
from nki.store.programs import pack_programs

_DUMPED = re.compile(r"[0-9]{2}-([a-z]+)\.mlir")


def resume(path: str | Path, setting: Setting | None = None, **changes: Any) -> Executable:
    """Go on from a file of a folder of dumps: ``resume("dumps/04-fused.mlir")``.

    A stage in StableHLO is read, and the stages after it are made. A linked program is verified, and gets the names and
    weights of the folder's ``model.neff``. A ``.neff`` file is loaded as it is.

    Args:
        setting: how; None for what the folder's model was compiled with.
        changes: fields of `Setting` that are different.

    Raises:
        UsageError: "graph.stage" for a file that is no stage from which one can go on.
        NkiError: what compilation raises; "ir.*", rules, and races of a linked program that breaks them.
        ArtifactError: "artifact.*" for a ``.neff`` file that is damaged, or does not fit the linked program.
    """
    path = Path(path)
    made = replace(setting or _recorded(path.parent / SETTING), **changes)
    if path.suffix == ".neff":
        return Executable.load(path, made.options)
    if path.name == LINKED and (path.parent / NEFF).is_file():
        return _linked(path, made.options)
    match = _DUMPED.fullmatch(path.name)
    names = [IMPORTED, *STAGES]
    if match is None or match[1] not in names:
        raise UsageError(
            "graph.stage",
            f"{path.name} is no stage of a model",
            rule=f"one can go on from NN-STAGE.mlir, where STAGE is {', '.join(names)}, from {LINKED} beside a {NEFF}, "
            f"or from {NEFF}",
            fix=f"name the file of an earlier stage in {path.parent}",
            location=UNKNOWN,
        )
    held = [_reference(file) for file in sorted(path.parent.glob(f"{REFERENCE}*.neff"))]
    with span(f"compile {made.name}", "compile"):
        found = GraphCompilation(made).run(read(_text(path), str(path)), match[1])
    del held  # the program has copies of the kernels now
    return found


def _text(path: Path) -> str:
    """The text of a stage. Raises UsageError "graph.stage"."""
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(
            "graph.stage",
            f"{path} cannot be read: {problem}",
            rule="a stage is a file of MLIR text",
            fix="check the path, or write the stages again with --dump-ir",
            location=UNKNOWN,
        ) from None


def _recorded(file: Path) -> Setting:
    """How the model of a folder was compiled, as far as it can be written down."""
    if not file.is_file():
        return Setting()
    try:
        found: Mapping[str, Any] = json.loads(read_regular(file))
        patterns, donated = found["patterns"], found["donated"]
        return Setting(
            str(found["name"]),
            str(found["target"]),
            patterns=None if patterns is None else frozenset(map(str, patterns)),
            disabled=frozenset(map(str, found["disabled"])),
            donated=None if donated is None else {int(result): int(argument) for result, argument in donated.items()},
            lnc=int(found["lnc"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            "graph.stage",
            f"{file} does not say how a model was compiled: {error!r}",
            rule=f"{SETTING} is what was written with the stages",
            fix="compile the model again with a folder for its stages, or remove the file and say how",
            location=UNKNOWN,
        ) from None


def _linked(path: Path, options: Options) -> Executable:
    """The model of a folder with the programs of a file of IR, checked like those of any artifact."""
    whole = load_model(path.parent / NEFF, options)
    programs = read_programs(from_text(_text(path), name=str(path)))
    same = pack_programs(programs) == pack_programs(whole.programs)
    packed = container.pack(
        programs,
        options={"matmul": options.matmul, "api": options.api, "imitate": options.imitate},
        disabled_rules=whole.options.disabled_rules,
        model=whole.part if same else replace(whole.part, kernels=()),  # edits may move instructions between kernels
    )
    found = model_of(unpack(packed), options)
    refuse_races(found.programs, found.target)
    return Executable.of(found)


def _reference(file: Path) -> Reference:
    """A user's kernel from a folder of dumps, made known."""
    found = container.load(file)
    return register(file.stem.removeprefix(REFERENCE), found.header.name, found.programs)
