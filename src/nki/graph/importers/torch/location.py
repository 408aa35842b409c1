"""The model's line that a node of a traced graph comes from, read from the stack that PyTorch keeps as text."""

from __future__ import annotations

import linecache
import re
from functools import lru_cache
from pathlib import Path

import torch
from torch import fx

from nki.core.source import UNKNOWN, Frame, Location

_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TORCH = str(Path(torch.__file__).parent) + "/"


def location_of(node: fx.Node) -> Location:
    """The model's lines from the innermost outwards; those of PyTorch itself only if there are no others."""
    trace = node.meta.get("stack_trace")
    return _parsed(trace) if trace else UNKNOWN


@lru_cache(maxsize=4096)  # operations of one line have one trace
def _parsed(trace: str) -> Location:
    frames = [_frame(file, function, int(line)) for file, line, function in _LINE.findall(trace)][::-1]
    own = [frame for frame in frames if not frame.file.startswith(_TORCH)]
    return Location(tuple(own or frames))


def _frame(file: str, function: str, line: int) -> Frame:
    text = linecache.getline(file, line).rstrip()
    return Frame(file, function, line, len(text) - len(text.lstrip()), line if text else 0, len(text))
