"""Kernels for groups of operations: one emitter for each kind of group."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nki.graph.emit.collective import emit_collective
from nki.graph.emit.conv import emit_conv
from nki.graph.emit.dot import emit_dot
from nki.graph.emit.gather import emit_gather
from nki.graph.emit.joined import emit_joined
from nki.graph.emit.move import emit_move
from nki.graph.emit.pointwise import emit_pointwise
from nki.graph.emit.rng import emit_rng
from nki.graph.emit.rows import emit_rows
from nki.graph.emit.scatter import emit_scatter
from nki.graph.emit.sort import emit_sort
from nki.graph.emit.window import emit_window
from nki.graph.ir import Group
from nki.target.model import Target

Kernel = Callable[..., None]
"""Takes device tensors: first those of a group's inputs, then those of its outputs, which it writes."""

Emitter = Callable[[Group, Target], Kernel]
"""Raises GraphError ("graph.unsupported") for what it cannot do."""

EMITTERS: Mapping[str, Emitter] = {
    "pointwise": emit_pointwise,
    "joined": emit_joined,
    "rows": emit_rows,
    "move": emit_move,
    "dot": emit_dot,
    "conv": emit_conv,
    "window": emit_window,
    "gather": emit_gather,
    "scatter": emit_scatter,
    "sort": emit_sort,
    "rng": emit_rng,
    "collective": emit_collective,
}
"""By the kind of group."""
