"""What became of a graph: right, wrong, refused with a code, or ended by an exception that nobody planned."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nki.core.errors import NkiError
from tests.graph.differential.bound import Bound
from tests.graph.differential.draw import bounds_of
from tests.graph.differential.gradients import derivatives, wrong_derivatives
from tests.graph.differential.products import PRODUCTS
from tests.graph.differential.records import Array, Graph
from tests.graph.differential.run import eagerly, on_device

RIGHT, WRONG, REFUSED, CRASHED = "right", "wrong", "refused", "crashed"

INTERNAL = "graph.internal"
"""The code of failures that nobody planned."""


@dataclass(frozen=True)
class Outcome:
    """What became of a graph.

    Attributes:
        status: one of the four above.
        kind: of a refusal its code, of a crash the exception and where it was raised.
        why: for people.
        beside: what is outside of the bounds in the framework's own results, or "". The framework is wrong if the
            device is right, as where XLA multiplies by a truth value; perhaps the bounds are if both are outside.
    """

    status: str
    kind: str = ""
    why: str = ""
    beside: str = ""

    @property
    def fault(self) -> bool:
        return self.status in (WRONG, CRASHED)


_SOME = 5
"""Of so many graphs of JAX one is compiled for the host as well, which takes longer than anything else."""


def outcome(graph: Graph) -> Outcome:
    """Compute on the device and by the framework, and compare both with the bounds."""
    bounds = [bounds_of(graph)[k] for k in graph.results]
    try:
        found = on_device(graph, derivatives(graph) if graph.derived else None)
    except Exception as error:  # noqa: BLE001  whatever comes is judged
        return failed(error)
    if graph.derived:
        why = wrong_derivatives(graph, found)
        return Outcome(WRONG if why else RIGHT, why=why)
    why = compared(found, bounds)
    beside = ""
    if why or (not coarse(graph) and (graph.language == "torch" or graph.seed % _SOME == 0)):
        beside = _framework(graph, bounds)
    return Outcome(WRONG if why else RIGHT, why=why, beside=beside)


def _framework(graph: Graph, bounds: Sequence[Bound]) -> str:
    """What is outside in its own results; eager PyTorch has no code for some operators on 8-bit floats."""
    try:
        return compared(eagerly(graph), bounds)
    except NotImplementedError:
        return ""


def compared(found: Sequence[Array], bounds: Sequence[Bound]) -> str:
    """What is wrong with the first result that is outside of its bounds, or ""."""
    whys = (outside(array, bound) for array, bound in zip(found, bounds, strict=True))
    return next((f"result {number}: {why}" for number, why in enumerate(whys) if why), "")


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
    coded = [each for each in chain if isinstance(each, NkiError)]
    if coded and all(each.code != INTERNAL for each in coded):
        return Outcome(REFUSED, coded[0].code, coded[0].message)
    error = chain[-1]
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
