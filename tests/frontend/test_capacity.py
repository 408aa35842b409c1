"""What is larger than the chip: eager runs warn and go on, calls and `nki check` refuse, all by the same rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.report import NkiWarning
from nki.sim.arena import new_arena
from nki.spec.rule import Finding
from tests.support import environment
from tests.tools.kernels import write
from tests.tools.running import nki_json

ROW = np.arange(128 * 512, dtype=np.float32).reshape(128, 512) // 256
FAR = 262_144
"""A byte that no target has in SBUF."""


def through(tile: Any, a: Any) -> Any:
    """`a` by way of the end of a tile."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    part = tile if tile.ndim == 2 else tile[:, tile.shape[1] - 1]
    part = part[:, part.shape[1] - 512 :]
    nisa.tensor_copy(dst=part, src=nl.load(a))
    nl.store(out, nl.copy(part))
    return out


SINGLE: dict[str, Callable[[], Any]] = {
    "psum": lambda: nl.ndarray((128, 16, 2048), nl.float32, buffer=nl.psum),
    "a bank too many": lambda: nl.ndarray((128, 9, 512), nl.float32, buffer=nl.psum),
    "sbuf": lambda: nl.ndarray((128, 64, 2048), nl.float32),
    "bfloat16": lambda: nl.ndarray((128, 200, 1024), nl.bfloat16),
    "address": lambda: nl.ndarray((128, 512), nl.float32, address=(0, FAR)),
    "bank": lambda: nl.ndarray((128, 512), nl.float32, buffer=nl.psum, address=(0, 8 * 2048)),
    "zeros": lambda: nl.zeros((128, 8192), nl.float32, buffer=nl.psum),
}


def eagerly(kernel: Any, *args: Any) -> tuple[Any, list[Finding]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = np.asarray(nki.simulate(kernel)(*args))
    return result, [each.message.finding for each in caught if isinstance(each.message, NkiWarning)]


def refusal(kernel: Any, *args: Any) -> NkiError:
    with pytest.raises(NkiError) as refused:
        kernel(*args)
    return refused.value


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("case", SINGLE)
def test_one_tensor(case: str, target: str) -> None:
    @nki.jit
    def kernel(a: Any) -> Any:
        return through(SINGLE[case](), a)

    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
        result, findings = eagerly(kernel, ROW)
        error = refusal(kernel, ROW)
    assert (result == ROW).all()
    assert [finding.code for finding in findings] == ["tensor.capacity"]
    assert str(findings[0].facts["limit"]) in findings[0].message
    assert (error.code, error.facts) == ("tensor.capacity", findings[0].facts)


def chained(a: Any, count: int, buffer: Any) -> Any:
    """Tiles that are made one from the other, and needed in the opposite order: all are in use at once."""
    tiles = [nl.load(a)]
    for _ in range(count):
        tiles.append(nl.ndarray(a.shape, a.dtype, buffer=buffer))
        nisa.tensor_scalar(dst=tiles[-1], data=tiles[-2], op0=nl.add, operand0=1.0)
    for tile in reversed(tiles[1:]):
        nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tile, op=nl.add)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tiles[0])
    return out


def many(a: Any) -> Any:
    """Five tiles of 64 KiB, more than any target has."""
    return chained(a, 4, nl.sbuf)


def banks(a: Any) -> Any:
    """Nine banks of PSUM."""
    return chained(a, 9, nl.psum)


@pytest.mark.parametrize(("kernel", "columns"), [(many, 16384), (banks, 512)])
def test_tensors_together(kernel: Any, columns: int) -> None:
    data = np.ones((128, columns), np.float32)
    result, findings = eagerly(nki.jit(kernel), data)
    assert (result == (15 if columns > 512 else 55)).all()
    assert [finding.code for finding in findings] == ["memory.capacity"]
    error = refusal(nki.jit(kernel), data)
    assert error.code == "memory.capacity"
    assert error.message in findings[0].message
    assert error.rule in findings[0].message
    with environment(NKI_DISABLE_RULES="memory.capacity"):
        assert eagerly(nki.jit(kernel), data)[1] == []


def one_after_the_other(a: Any) -> Any:
    """As many bytes, but each tile is needed no more when the next one comes."""
    out = nl.ndarray((5, *a.shape), a.dtype, buffer=nl.shared_hbm)
    for number in range(5):
        nl.store(out[number], nl.load(a))
    return out


def test_what_fits_is_not_told_of() -> None:
    kernel = nki.jit(one_after_the_other)
    assert eagerly(kernel, np.ones((128, 16384), np.float32))[1] == []
    assert kernel(np.ones((128, 16384), np.float32)).shape == (5, 128, 16384)


def test_spilling_makes_room() -> None:
    config = nki.compiler.CompileConfig(spill=True)
    data = np.ones((128, 16384), np.float32)
    assert eagerly(nki.jit(many, compile_config=config), data)[1] == []


@pytest.mark.parametrize("shape", ["(128, 16, 2048)", "(128, 9, 512)"])
def test_check_names_the_same_rule_and_goes_on(tmp_path: Path, shape: str) -> None:
    source = f"""
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a):
    t = nl.ndarray({shape}, nl.float32, buffer=nl.psum)
    nisa.tensor_copy(dst=t[:, 0, 0:3], src=nl.load(a))
    return a
"""
    told = nki_json("check", write(tmp_path, source), "--arg", "a=128x64:float32", code=1)
    assert [each["code"] for each in told["findings"]][:2] == ["tensor.capacity", "tensor_copy.shapes"]


def test_addresses_past_the_end_are_still_addresses() -> None:
    """Two tensors at one address share bytes, and those that were there before keep theirs."""

    @nki.jit
    def kernel(a: Any) -> Any:
        near = nl.ndarray((128, 512), nl.float32, address=(0, 4096))
        nisa.dma_copy(dst=near, src=a)
        far = nl.ndarray((128, 512), nl.float32, address=(0, FAR))
        again = nl.ndarray((128, 512), nl.float32, address=(0, FAR))
        nisa.tensor_copy(dst=far, src=near)
        nisa.tensor_scalar(dst=near, data=near, op0=nl.add, operand0=1.0)
        out = nl.ndarray((2, 128, 512), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[0], again)
        nl.store(out[1], near)
        return out

    result, findings = eagerly(kernel, ROW)
    assert (result == np.stack([ROW, ROW + 1])).all()
    assert {finding.code for finding in findings} == {"tensor.capacity"}


def test_an_arena_grows_with_its_bytes_and_notes() -> None:
    arena = new_arena(4, 96, "sentinel")
    arena.base.reshape(4, -1)[:, :96] = np.arange(4 * 96).reshape(4, 96)
    arena.written.reshape(4, -1)[1, 5] = True
    wider = arena.grown(1000, "sentinel")
    assert (wider.base.reshape(4, -1)[:, :96] == np.arange(4 * 96, dtype=np.uint8).reshape(4, 96)).all()
    assert np.argwhere(wider.written.reshape(4, -1)).tolist() == [[1, 5]]
    assert np.isnan(wider.base.reshape(4, -1)[:, 960:1000].copy().view(np.float32)).all()
