"""What became of a graph: right, wrong, refused with a code, or ended by an exception that nobody planned."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import numpy as np

from nki.core.errors import NkiError
from tests.graph.differential.bound import Bound
from tests.graph.differential.draw import bounds_of
from tests.graph.differential.products import PRODUCTS
from tests.graph.differential.records import Array, Graph
from tests.graph.differential.run import eagerly, on_device

RIGHT, WRONG, REFUSED, CRASHED, UNSOUND = "right", "wrong", "refused", "crashed", "unsound"


@dataclass(frozen=True)
class Outcome:
    """What became of a graph.

    Attributes:
        status: one of the five above; "unsound" if the framework itself is outside of the bounds, a defect of theirs.
        kind: of a refusal its code, of a crash the exception and where it was raised.
        why: for people.
    """

    status: str
    kind: str = ""
    why: str = ""

    @property
    def fault(self) -> bool:
        return self.status in (WRONG, CRASHED, UNSOUND)


def outcome(graph: Graph, framework: bool = True) -> Outcome:
    """Compute on the device, and compare with the bounds; they are compared with the framework first."""
    bounds = [bounds_of(graph)[k] for k in graph.results]
    if framework and not coarse(graph):
        for number, (array, bound) in enumerate(zip(eagerly(graph), bounds, strict=True)):
            why = outside(array, bound)
            if why:
                return Outcome(UNSOUND, why=f"the framework's result {number}: {why}")
    try:
        found = on_device(graph)
    except Exception as error:  # noqa: BLE001  whatever comes is judged
        return failed(error)
    for number, (array, bound) in enumerate(zip(found, bounds, strict=True)):
        why = outside(array, bound)
        if why:
            return Outcome(WRONG, why=f"result {number}: {why}")
    return Outcome(RIGHT)


def coarse(graph: Graph) -> bool:
    """Products of small floats, whose terms PyTorch and XLA round on some hosts: no reference for the bounds."""
    values = bounds_of(graph)
    return any(
        values[k].dtype in ("bfloat16", "float16")
        for node in graph.nodes
        if node.operator in PRODUCTS
        for k in node.operands
    )


def failed(error: BaseException) -> Outcome:
    """A refusal, also one that a framework wraps, or a crash."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    for each in chain:
        if isinstance(each, NkiError):
            return Outcome(REFUSED, each.code, each.message)
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f"{f.filename.rpartition('/')[2]}:{f.name}" for f in reversed(frames) if "/nki/" in f.filename), "")
    return Outcome(CRASHED, f"{type(error).__name__} in {place}", f"{error}"[:500])


def outside(array: Array, bound: Bound) -> str:
    """What is wrong with a result, or ""."""
    if array.dtype.name != bound.dtype or array.shape != bound.shape:
        return f"{array.dtype.name}{list(array.shape)} instead of {bound.dtype}{list(bound.shape)}"
    with np.errstate(all="ignore"):
        values = array.astype(np.float64)
    nan = np.isnan(values)
    wrong = np.where(nan, ~bound.nan, ~((values >= bound.low) & (values <= bound.high)))
    if not wrong.any():
        return ""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    span = f"{bound.low[at]:.9g} to {bound.high[at]:.9g}" if bound.low[at] != bound.high[at] else f"{bound.low[at]:.9g}"
    return f"{int(wrong.sum())} of {values.size} wrong, first at {list(at)}: {values[at]:.9g} instead of {span}"
