"""``nki.predict``: how long a call of a kernel takes on a target, from shapes and dtypes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nki.core.html import html_table
from nki.driver.measure import question, times_of
from nki.driver.prepare import prepare
from nki.frontend.host import take_shape
from nki.kernel import Kernel, alone, kernel_of
from nki.profiling.evidence import evidence, tell_of_unmeasured
from nki.spec.step import UNITS


@alone
def predict(kernel: Any, *, target: str = "") -> Predictor:
    """The time of a call, and nothing else: ``nki.predict(kernel)(nki.ShapeDtype((128, 512), nl.float32), tile=64)``.

    It is the time that `nki.profile` has for the same call, which is refused for the same reasons. The kernel is traced
    and goes through the compiler's passes; no data, no native code and no file are needed, and nothing is remembered.

    Args:
        kernel: a kernel, ``kernel[lnc]``, or a plain function. The result can be subscripted as well.
        target: name of the target; by default that of a call.

    Raises:
        LaunchError: no kernel (``jit.function``), or its arguments as well (``jit.called``).
        TargetError: there is no such target, once the result is called.
    """
    return Predictor(kernel_of("nki.predict", kernel), target)


class Predictor:
    """What `predict` returns: call it as the kernel, with arrays or with what stands for them.

    An `nki.ShapeDtype`, a `jax.ShapeDtypeStruct`, and meta and fake tensors of PyTorch stand for arrays.
    """

    def __init__(self, kernel: Kernel, target: str) -> None:
        self._kernel, self._target = kernel, target

    def __repr__(self) -> str:
        return f"<nki.predict({self._kernel.func.__name__}): call it with the arguments of the kernel>"

    def __getitem__(self, lnc: Any) -> Predictor:
        """This predictor on `lnc` cores."""
        return Predictor(self._kernel[lnc], self._target)

    def __call__(self, *args: Any, **kwargs: Any) -> Prediction:
        prepared = prepare(self._kernel, args, kwargs, mode="compiled", target=self._target, cache={}, see=take_shape)
        tell_of_unmeasured(prepared.target)
        target, times = prepared.target, times_of(question(prepared))
        slowest = max(times, key=lambda each: each.spent.ns)
        return Prediction(
            kernel=prepared.launch.name,
            target=target.name,
            validated=target.validated,
            ns=slowest.spent.ns,
            launch_ns=float(target.timing["launch_ns"]),
            cores_ns=tuple(each.spent.ns for each in times),
            busy_ns=dict(zip(UNITS, slowest.spent.busy, strict=True)),
            bound_by=slowest.bound_by,
            dma_bytes=slowest.spent.nbytes,
            instructions=slowest.spent.instructions,
            assumed=any(each.assumed for each in times),
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """The time of one call on the timing model; of several cores the rest is about the slowest.

    Attributes:
        kernel, target: names.
        validated: whether the timing model of the target was compared with published measurements.
        ns: from the start to the end of the kernel: `Profile.makespan_ns`.
        launch_ns: what a launch adds.
        cores_ns: the time of each core.
        busy_ns: ns for which each unit works; of "dma" those with at least one transfer in flight.
        bound_by: the unit that works longest; of "dma" the part of its engines that transfers use counts.
        dma_bytes: payload of all transfers.
        instructions: that run, all trips of loops counted.
        assumed: whether loops whose trips depend on data count as one trip.
    """

    kernel: str
    target: str
    validated: bool
    ns: float
    launch_ns: float
    cores_ns: tuple[float, ...]
    busy_ns: Mapping[str, float]
    bound_by: str
    dma_bytes: float
    instructions: float
    assumed: bool

    @property
    def shares(self) -> dict[str, float]:
        """The part of the time for which each unit works."""
        return {unit: busy / self.ns if self.ns else 0.0 for unit, busy in self.busy_ns.items()}

    def __str__(self) -> str:
        shares = ", ".join(f"{unit} {share:.0%}" for unit, share in self.shares.items() if share >= 0.005)
        assumed = "; loops whose trips depend on data count as one trip" if self.assumed else ""
        return (
            f"{self.kernel} on {self.target}: {self.ns / 1000:.2f} µs, bound by {self.bound_by} ({shares}){assumed} "
            f"({evidence(self.target, self.validated)})"
        )

    def _repr_html_(self) -> str:
        rows = [(unit, f"{share:.0%}") for unit, share in self.shares.items()]
        title = f"{self.kernel} on {self.target}: {self.ns / 1000:.2f} µs, bound by {self.bound_by}"
        notes = ["loops whose trips depend on data count as one trip"] if self.assumed else []
        return html_table(title, rows, notes=[*notes, evidence(self.target, self.validated)])
