"""The archive that ``torch.export.save`` writes, checked before PyTorch reads it, so that reading it executes nothing.

PyTorch's own reader unpickles some parts of an archive, evaluates the texts of symbolic sizes, imports the modules that
tree specifications name, looks operators up by attribute, and loads libraries. Each of these runs what a file says.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from nki.core.errors import UsageError
from nki.core.source import UNKNOWN

_PLAIN = re.compile(
    r"(\.data/\w+|byteorder|archive_format|archive_version|extra/.*|models/model\.json"
    r"|data/weights/(model_weights_config\.json|weight_\d+)|data/constants/(model_constants_config\.json|tensor_\d+))"
)
_SAMPLES = "data/sample_inputs/model.pt"
"""Inputs for which the model was exported, pickled; nothing here needs them."""

_CONFIGURATIONS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_MODEL = "models/model.json"
_OPERATOR = re.compile(r"torch\.ops\.(_c10d_functional|[a-zA-Z]\w*)\.([a-zA-Z_]\w*)(?:\.([a-zA-Z]\w*))?")
_TREES = frozenset({None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})


def checked_archive(path: Path) -> io.BytesIO:
    """The archive in memory, without the parts that nothing here needs.

    Raises:
        UsageError: "cc.pickle" for a part that only unpickling or loading code could read, "cc.model" for a file that
            is no such archive or says something that no exported model does.
    """
    try:
        return _checked(path)
    except UsageError:
        raise
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise refused(f"{path} cannot be read: {type(error).__name__}", "torch.export.save writes such files") from None


def refused(message: str, rule: str, fix: str = "export the model again in eval mode") -> UsageError:
    """The error for a file that is no model of PyTorch's, or none that can be compiled."""
    return UsageError("cc.model", message, rule=rule, fix=fix, location=UNKNOWN)


def _checked(path: Path) -> io.BytesIO:
    kept = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(kept, "w", zipfile.ZIP_STORED) as copy:
        members = _members(path, archive)
        for name in _CONFIGURATIONS:
            _check_configuration(path, json.loads(archive.read(members[name])), archive, members)
        _check_model(path, json.loads(archive.read(members[_MODEL])))
        for name, member in members.items():
            copy.writestr(member.filename, b"" if name == _SAMPLES else archive.read(member))
    kept.seek(0)
    return kept


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files of an archive by their names below its own folder; they are stored as they are."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.partition("/")[2]
        if name != _SAMPLES and not _PLAIN.fullmatch(name):
            raise _unsafe(f"{path} has the part {member.filename[:80]!r}")
        if member.compress_type != zipfile.ZIP_STORED or name in found:
            raise refused(f"{path}: {member.filename!r} is compressed or there twice", "parts are stored, each once")
        found[name] = member
    return found


def _check_configuration(path: Path, read: Any, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> None:
    """Tensors are plain bytes, and as many as their shapes need."""
    for name, payload in read["config"].items():
        place = str(payload["path_name"])
        if payload["use_pickle"] or payload["tensor_meta"] is None or not re.fullmatch(r"(weight|tensor)_\d+", place):
            raise _unsafe(f"{path}: {name!r} is pickled")
        folder = "weights" if place.startswith("weight") else "constants"
        size = members[f"data/{folder}/{place}"].file_size
        shape = [each["as_int"] for each in payload["tensor_meta"]["sizes"]]
        if not size and prod(shape):
            raise refused(f"{path}: {name!r} of shape {shape} has no bytes", "tensors have the bytes of their elements")


def _check_model(path: Path, model: Any) -> None:
    """Nothing in the description of a graph is evaluated, imported or called."""
    for key, value in _walk(model):
        if key == "expr_str":
            raise refused(
                f"{path}: a size is {str(value)[:80]!r}",
                "sizes are numbers; the text of a symbolic size is a program, which is not run",
                "export the model without dynamic_shapes",
            )
        if key == "target" and isinstance(value, str):
            _check_target(path, value)
        if key in ("in_spec", "out_spec") and isinstance(value, str) and value:
            _check_tree(path, value)


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every item of every object in a JSON document."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield from item.items()
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def _check_target(path: Path, target: str) -> None:
    """A node calls an operator that is registered with PyTorch, and nothing that has only such a name."""
    match = _OPERATOR.fullmatch(target)
    found: Any = getattr(torch.ops, match[1], None) if match else None
    if match and isinstance(found, torch._ops._OpNamespace):
        for name in match.groups()[1:]:
            found = found if name is None else getattr(found, name, None)
        if isinstance(found, OpOverload | OpOverloadPacket | HigherOrderOperator):
            return
        if found is None:
            raise refused(
                f"{path} calls {target[:120]}, which nobody has registered",
                "operators of your own are registered by the module that defines them",
                "name that module: nki cc --import MODULE",
            )
    if target != "_operator.getitem":
        raise _unsafe(f"{path} calls {target[:120]!r}, which is no operator")


def _check_tree(path: Path, text: str) -> None:
    """Arguments and results are in tuples, lists and dicts."""
    for key, value in _walk(json.loads(text)):
        if key == "type" and value not in _TREES:
            raise refused(
                f"{path}: arguments or results are in a {str(value)[:80]!r}",
                "they are tensors in tuples, lists and dicts; classes would have to be imported",
                "wrap the model in a module that takes and returns those, and export that",
            )
        inner = _walk(json.loads(value)) if key == "context" and isinstance(value, str) else ()
        if "__enum__" in (key, *(name for name, _ in inner)):
            raise _unsafe(f"{path}: a key of a dict is a member of a class")


def _unsafe(message: str) -> UsageError:
    return UsageError(
        "cc.pickle",
        message,
        rule="a model is loaded without executing anything, and pickled parts, libraries and calls are programs",
        fix="export a model whose parameters, buffers and constants are plain tensors",
        location=UNKNOWN,
    )
