"""What Dynamo gives up runs in Python, operator by operator; with the backend ``neuron`` it says so once.

Dynamo decides that before any backend is asked, and tells a log at most. So the functions that convert a frame are
wrapped here. They are private and may change; no other module uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._dynamo import convert_frame
from torch._dynamo.exc import Unsupported
from torch._dynamo.types import ConvertFrameReturn
from torch._dynamo.utils import counters

from nki.core.source import Location, of_function
from nki.interop.torch.user_location import is_torch, user_line
from nki.report import warn
from nki.spec.rule import Finding

_LAYERS = "RNN, GRU, or LSTM"

_LIMIT = "recompile limit"

_TOLD: set[tuple[str, str, Location]] = set()
"""What this process was warned of, so that each is said once; emptied at `_MOST_TOLD`."""

_LEFT: WeakKeyDictionary[torch.nn.Module, bool] = WeakKeyDictionary()
"""Modules of PyTorch that were given up, and whether recurrent layers were allowed then."""

_MOST_TOLD = 1024


Conversion = Callable[..., Any]
"""What converts a frame: a conversion, the frame, and what Dynamo gives it besides."""


@cache
def install(backend: str) -> None:
    """Watch what Dynamo gives up that was to be compiled by a backend, once per process."""
    convert_frame.ConvertFrameAssert.__call__ = _telling(backend, convert_frame.ConvertFrameAssert.__call__)
    convert_frame.ConvertFrame.__call__ = _keeping_modules(backend, convert_frame.ConvertFrame.__call__)


def _telling(backend: str, converted: Conversion) -> Conversion:
    """The conversion of a frame, which says what it gives up."""

    def convert(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        if _backend(self) != backend or self._one_graph:
            return converted(self, frame, *args, **kwargs)
        before = set(counters["graph_break"])
        try:
            return converted(self, frame, *args, **kwargs)
        except Unsupported as error:
            _tell(frame, str(error))
            raise
        finally:
            for reason in set(counters["graph_break"]) - before:
                if _LAYERS in reason:
                    _tell(frame, reason)

    return convert


def _keeping_modules(backend: str, kept: Conversion) -> Conversion:
    """The conversion of a frame, which gives up one module of PyTorch and not all of them.

    PyTorch calls all of its own modules by the same code.
    """

    def keep(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        if _backend(self) != backend or not is_torch(frame.f_code.co_filename):
            return kept(self, frame, *args, **kwargs)
        module = _module(frame)
        if module is not None and _LEFT.get(module) == torch._dynamo.config.allow_rnn:
            return ConvertFrameReturn(apply_to_code=False)
        found = kept(self, frame, *args, **kwargs)
        if found.guarded_code is None and found.skip_reason is not None:
            found.apply_to_code = False
            if module is not None:
                _LEFT[module] = torch._dynamo.config.allow_rnn
        return found

    return keep


def _backend(conversion: Any) -> str:
    made = conversion._torchdynamo_orig_backend
    return str(getattr(made, "_compiler_name", getattr(made, "compiler_name", "")))


def _module(frame: Any) -> torch.nn.Module | None:
    """The module of PyTorch that a frame is a call of."""
    called = frame.f_locals.get("fn")
    return called if isinstance(called, torch.nn.Module) else None


def _tell(frame: Any, reason: str) -> None:
    code, module = frame.f_code, _module(frame)
    foreign = is_torch(code.co_filename)
    where = user_line() if foreign else of_function(code)
    name = code.co_qualname if not foreign else "a function of PyTorch" if module is None else type(module).__name__
    kind = next((each for each in (_LAYERS, _LIMIT) if each in reason), "")
    if (name, kind, where) in _TOLD:
        return
    if len(_TOLD) >= _MOST_TOLD:
        _TOLD.clear()
    _TOLD.add((name, kind, where))
    warn(_limit(name, where) if kind == _LIMIT else _given_up(name, reason, where))


def _given_up(name: str, reason: str, where: Location) -> Finding:
    what, why, fix = name, (reason.strip().splitlines() or ["PyTorch does not say why"])[0], "write it in another way"
    if _LAYERS in reason:
        what, why = f"{name}, which has a layer of {_LAYERS},", "PyTorch's Dynamo traces no such layers"
        fix = "set torch._dynamo.config.allow_rnn = True, which writes all steps of the layer into the program"
    return Finding(
        "torch.python",
        "warning",
        f"{what} is not compiled and runs in Python: {why}",
        "what PyTorch's Dynamo cannot trace runs in Python, operator by operator, where its tensors are",
        "torch.compile",
        f"{fix}; fullgraph=True makes this an error",
        where,
        {},
    )


def _limit(name: str, where: Location) -> Finding:
    limit = torch._dynamo.config.recompile_limit
    return Finding(
        "torch.recompile-limit",
        "warning",
        f"{name} was compiled {limit} times, which is PyTorch's limit; calls with other arguments run in Python",
        "each size, and each number that decides a size or a branch, is a program of its own",
        "torch._dynamo.config.recompile_limit",
        "use few sizes (pad, or a cache of fixed size), or raise torch._dynamo.config.recompile_limit",
        where,
        {},
    )
