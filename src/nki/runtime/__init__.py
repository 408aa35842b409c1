"""Simulated devices and a small runtime: load, allocate, write, execute, read, unload; see docs/runtime.md."""

from nki.runtime.api import Runtime
from nki.runtime.handles import CoreState, Tensor
from nki.runtime.handles import LoadedModel as Loaded
from nki.runtime.launch_ranks import run_ranks
from nki.runtime.model import Model, load_model
from nki.runtime.spans import Span, recording, show_ranges
from nki.runtime.status import NrtError, Status
from nki.runtime.trace import write_system_trace
from nki.sim.random import forget_random_states

__all__ = [
    "CoreState",
    "Loaded",
    "Model",
    "NrtError",
    "Runtime",
    "Span",
    "Status",
    "Tensor",
    "forget_random_states",
    "load_model",
    "recording",
    "run_ranks",
    "show_ranges",
    "write_system_trace",
]
