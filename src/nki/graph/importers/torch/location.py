"""Where in a model a node of a traced graph comes from: its line, the modules around it, and the operator."""

from __future__ import annotations

import linecache
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from nki.core.origin import ModuleCall, Origin
from nki.core.source import Frame, Location

_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_MEMBER = re.compile(r"\[['\"]?(\w+)['\"]?\]")
_REACHED = ("L[", "G[")  # a local or a global variable of the function that is compiled
_WHOLE = re.compile(r"^\.(self|fn)(?=\.|$)")  # what Dynamo calls the module that is compiled, also by way of a function
_TORCH = str(Path(torch.__file__).parent) + "/"


def location_of(node: fx.Node) -> Location:
    """The model's lines from the innermost outwards; those of PyTorch itself only if there are no others."""
    trace = node.meta.get("stack_trace")
    return Location(_parsed(trace) if trace else (), origin_of(node))


@lru_cache(maxsize=4096)  # operations of one line have one trace
def _parsed(trace: str) -> tuple[Frame, ...]:
    frames = [_frame(file, function, int(line)) for file, line, function in _LINE.findall(trace)][::-1]
    own = [frame for frame in frames if not frame.file.startswith(_TORCH)]
    return tuple(own or frames)


def origin_of(node: fx.Node) -> Origin | None:
    """The modules that were running, and the operator before it was taken apart; None for what is no call.

    A node of a derivative has the modules of what it is the derivative of.
    """
    if node.op != "call_function":
        return None
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    modules = tuple(ModuleCall(_path(str(path)), _class(kind)) for path, kind in stack.values())
    operator = node.meta.get("original_aten") or node.target
    return Origin(modules, str(operator.overloadpacket if isinstance(operator, OpOverload) else operator))


@lru_cache(maxsize=4096)  # paths of modules: a few hundred for each model
def _path(source: str) -> str:
    """A module's path: Dynamo writes how Python reaches it, ``L['self']._modules['layers']._modules['0']``."""
    if not source.startswith(_REACHED):
        return source
    path = _MEMBER.sub(r".\1", source.replace("._modules[", "["))[1:]
    return _WHOLE.sub("", path).removeprefix(".")


def _class(kind: Any) -> str:
    """The name of a class, which a program that was exported has as text."""
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2]


def _frame(file: str, function: str, line: int) -> Frame:
    text = linecache.getline(file, line).rstrip()
    return Frame(file, function, line, len(text) - len(text.lstrip()), line if text else 0, len(text))
