"""What a declaration says is written is written: for every legal example, on the machine that keeps notes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import collectives as ncc
from nki.core.source import Location
from nki.core.tensor import View
from nki.driver.call import call
from nki.native.plan.definite_initialization import _operands
from nki.options import Options
from nki.sim.machine import Machine
from nki.sim.written import is_written
from nki.spec.program import Issued
from nki.target.load import load_target
from nki.target.model import Target
from tests.isa.registry import Legal
from tests.isa.test_registry import ALL
from tests.support import environment
from tests.together import together


def written_for_certain(issued: Issued, target: Target) -> list[View]:
    """What an instruction writes all of, whatever its values are."""
    return [view for view, writes, certain in _operands(issued, target) if writes and certain]


class Claims:
    """Compares what is claimed of each instruction with the notes after it."""

    def __init__(self, target: str) -> None:
        self.target = load_target(target)
        self.checked = 0

    def before(self, machine: Machine, issued: Issued) -> None:
        """Nothing."""

    def after(self, machine: Machine, issued: Issued) -> None:
        """What is certain must be there."""
        for view in written_for_certain(issued, self.target):
            if view.dynamic is None:
                storage = machine.memory.storage(view)
                assert is_written(storage, view, storage.window(view)), (issued.instruction.label, view)
                self.checked += 1

    def tap(self, machine: Machine, name: str, view: View, location: Location) -> None:
        """Nothing."""


def watched(kernel: Callable[..., Any], arguments: tuple[Any, ...], target: str, lnc: int | None = None) -> Claims:
    claims, made = Claims(target), nki.jit(kernel)
    made = made if lnc is None else made[lnc]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(replace(made.launch(), eager=True), arguments, {}, {}, Options(target=target), claims)
    return claims


EXAMPLES = [example for example in ALL if isinstance(example, Legal)]


@together("example", EXAMPLES, by=lambda example: example.instruction)
def test_what_is_certain_is_there(example: Legal) -> None:
    claims = watched(example.kernel, example.arguments(), example.targets[-1], example.lnc)
    assert claims.checked


def scales(a: Any) -> Any:
    """All rows of a scale tensor, of which quantization writes four in each quadrant."""
    rows, columns = a.shape
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    values = nl.ndarray((rows, columns // 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    found = nl.ndarray((rows, columns // 4), nl.uint8, buffer=nl.sbuf)
    out = nl.ndarray(found.shape, nl.uint8, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=a)
    nisa.quantize_mx(dst=values, src=tile, dst_scale=found)
    nisa.dma_copy(dst=out, src=found)
    return out


def product(a: Any) -> Any:
    """Their use, which reads those rows only."""
    rows, columns = a.shape
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    values = nl.ndarray((rows, columns // 4), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    found = nl.ndarray((rows, columns // 4), nl.uint8, buffer=nl.sbuf)
    sums = nl.ndarray((columns // 4, columns // 4), nl.float32, buffer=nl.psum)
    back = nl.ndarray(sums.shape, nl.float32, buffer=nl.sbuf)
    out = nl.ndarray(sums.shape, nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=a)
    nisa.quantize_mx(dst=values, src=tile, dst_scale=found)
    nisa.nc_matmul_mx(dst=sums, stationary=values, moving=values, stationary_scale=found, moving_scale=found)
    nisa.tensor_copy(dst=back, src=sums)
    nisa.dma_copy(dst=out, src=back)
    return out


def chunk(a: Any) -> Any:
    """A collective that writes the part of its destination which the metadata names: the first 3 elements."""
    out, table = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm), nl.zeros((3, 1), nl.uint32, buffer=nl.shared_hbm)
    count = nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf)
    nisa.memset(dst=count, value=3)
    nisa.dma_copy(dst=table[0:1], src=count)
    ncc.all_to_all_v([a], [out], ncc.ReplicaGroup([[0]]), table)
    return out


def nobody(a: Any) -> Any:
    """A collective in which this rank receives nothing."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    ncc.collective_permute([a], [out], [])
    return out


HALF = np.random.default_rng(5).normal(size=(64, 16)).astype(ml_dtypes.bfloat16)
WHOLE = np.ones((4, 8), np.float32)


@pytest.mark.parametrize(
    ("kernel", "a", "told"),
    [(scales, HALF, True), (product, HALF, False), (chunk, WHOLE, False), (nobody, WHOLE, False)],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_what_is_left_alone_shows_the_sentinel_in_every_mode(kernel: Callable[..., Any], a: Any, told: bool) -> None:
    watched(kernel, (a,), "trn3")
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="trn3"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = nki.simulate(kernel)(a)
        for native in ("0", "auto", "always"):
            with environment(NKI_NATIVE=native):
                made = nki.jit(kernel)
                for _ in range(3):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        np.testing.assert_array_equal(made(a), expected)
                    assert [f.code for f in made.report.findings] == ["memory.uninitialized"] * told
    if kernel is scales:
        assert (expected.reshape(2, 32, -1)[:, 4:] == 4).all() and (expected.reshape(2, 32, -1)[:, :4] != 4).all()
