"""What is measured of a case: the error of a run, the predicted time, the least time, the published kernel's time."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from time import perf_counter
from typing import Any

import numpy as np
from benchmarks.library.case import Case

import nki
from nki.runtime import run_ranks
from nki.target import load_target
from nkilib.catalogue import CATALOGUE, kernel, reference

PUBLISHED = "nkilib_src"


@dataclass(frozen=True)
class Measured:
    """Of one case; None for what was not asked.

    Attributes:
        key: of the case.
        ns: predicted time of the slowest core.
        bound_by: the unit that works longest.
        shares: part of the time for which each unit works.
        hbm_bytes: that are moved.
        instructions: that run.
        least_ns: the larger of products at the peak rate and compulsory bytes at the full rate of DMA.
        least_by: which of them: "tensor" or "dma".
        error: largest difference from the reference, as `error` has it.
        official_ns: predicted time of the published kernel.
        note: why something is missing.
        seconds: that the prediction took.
    """

    key: str
    ns: float | None = None
    bound_by: str = ""
    shares: Mapping[str, float] | None = None
    hbm_bytes: float | None = None
    instructions: float | None = None
    least_ns: float | None = None
    least_by: str = ""
    error: float | None = None
    official_ns: float | None = None
    note: str = ""
    seconds: float = 0.0

    @property
    def roofline(self) -> float | None:
        """The share of the roofline that is reached."""
        return None if not self.ns or self.least_ns is None else self.least_ns / self.ns

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self) | {"roofline": self.roofline}


def least(case: Case) -> tuple[float, str]:
    """ns that the hardware needs at least for the work of a case, all cores at full rates, and what needs it."""
    target = load_target(case.target)
    peak = getattr(target.peak, f"tensor_{case.peak}_tflops")
    products = case.flops / (peak * 1000.0) / case.lnc
    moved = case.hbm_bytes / target.dma.aggregate_gbps / case.lnc
    return max(products, moved), "tensor" if products > moved else "dma"


def measured(case: Case, official: str = "", run: bool = False) -> Measured:
    """A case, measured.

    Args:
        official: folder of a checkout of the published library, or "".
        run: whether the kernel runs beside its reference.
    """
    began = perf_counter()
    found = nki.predict(kernel(case.kernel), target=case.target)[case.lnc](**case.shapes())
    seconds = perf_counter() - began
    floor, by = least(case)
    published, note = published_ns(case, official) if official and case.official else (None, "")
    return Measured(
        key=case.key,
        ns=found.ns,
        bound_by=found.bound_by,
        shares=dict(found.shares),
        hbm_bytes=found.dma_bytes,
        instructions=found.instructions,
        least_ns=floor,
        least_by=by,
        error=error(case) if run else None,
        official_ns=published,
        note=note,
        seconds=seconds,
    )


def error(case: Case) -> float:
    """The largest difference of the results of a run from the reference.

    Each is a part of the number itself, or of the root mean square of its result where that is larger: what is small
    beside the others is the difference of others.
    """
    launched = kernel(case.kernel)[case.lnc]
    with target(case.target):
        if case.ranks == 1:
            arguments = case.arrays()
            made = launched(**{name: _copied(value) for name, value in arguments.items()})
        else:
            each = [case.arrays(seed) for seed in range(case.ranks)]
            made = run_ranks(launched, [tuple(arrays.values()) for arrays in each])
            arguments = {
                name: [arrays[name] for arrays in each] if isinstance(value, np.ndarray) else value
                for name, value in each[0].items()
            }
    in_numpy = reference(case.kernel)
    cores = {"lnc": case.lnc} if "lnc" in inspect.signature(in_numpy).parameters else {}
    wanted = in_numpy(**arguments, **cores)
    meaning = case.meaning or (lambda result: result)
    pairs = zip(leaves(made), leaves(wanted), strict=True)
    return max(_difference(meaning(a), meaning(b)) for a, b in pairs)


def leaves(value: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays of a result, in order."""
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None else [np.asarray(value)]


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _difference(made: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    if made.shape != wanted.shape:
        raise ValueError(f"the kernel returns {made.shape}, its reference {wanted.shape}")
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    differ = (a != b) & ~(np.isnan(a) & np.isnan(b))
    finite = b[np.isfinite(b)]
    rms = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    a, b = a[differ], b[differ]
    if not (np.isfinite(a) & np.isfinite(b)).all():
        return float("inf")
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), rms or 1.0), initial=0.0))


@contextlib.contextmanager
def target(name: str) -> Iterator[None]:
    """Calls inside are for this target."""
    before = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE")
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"]
        else:
            os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = before


def published_ns(case: Case, folder: str) -> tuple[float | None, str]:
    """Predicted time of the published kernel for the same call, or why there is none."""
    module = f"{PUBLISHED}.{CATALOGUE[case.kernel].module}"
    try:
        function = getattr(importlib.import_module(module), case.kernel)
        launched = nki.predict(function if hasattr(function, "launch") else nki.jit(function), target=case.target)
        arguments = case.theirs_shapes() or {name: _theirs(value) for name, value in case.shapes().items()}
        return launched[case.lnc](**arguments).ns, ""
    except Exception as refused:  # noqa: BLE001 - whatever it is: the table says it
        return None, f"{type(refused).__name__}: {str(refused).splitlines()[0] if str(refused) else ''}"[:160]


def _theirs(value: Any) -> Any:
    """An enumeration or a record of this library as the published library's of that name."""
    module = type(value).__module__
    if not module.startswith("nkilib."):
        return value
    kind = getattr(importlib.import_module(f"{PUBLISHED}.{module}"), type(value).__name__)
    if isinstance(value, Enum):
        return kind[value.name]
    if is_dataclass(value):
        return kind(**{each.name: _theirs(getattr(value, each.name)) for each in fields(value)})
    return value
