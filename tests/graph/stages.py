"""Compiling what is already in groups: the stages after fusion alone."""

from __future__ import annotations

from nki.graph.compile import GraphCompilation, Setting
from nki.graph.executable import Executable
from nki.graph.ir import Module


def compiled(module: Module, setting: Setting) -> Executable:
    return GraphCompilation(setting).grouped(module)
