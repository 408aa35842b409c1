"""Kernels of rows on every target: the same results where it has the instructions, a refusal where it has not."""

from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import nki.language as nl
from nkilib.catalogue import kernel, reference
from nkilib.core.topk import topk
from nkilib.errors import KernelLimit
from nkilib.experimental.topk import create_gpsimd_topk_config

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


COMPUTED: dict[str, tuple[Any, ...]] = {
    "RoPE": (normal(64, 1, 2, 70).astype(bfloat16), *(normal(32, 1, 70).astype(bfloat16) for _ in range(2))),
    "cumsum": (normal(3, 300),),
    "layer_norm_backward": (normal(5, 70), normal(5, 70), normal(70), normal(70)),
    "softmax": (normal(5, 70),),
}


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", sorted(COMPUTED))
def test_results_are_the_same(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    made, wanted = kernel(name)(*COMPUTED[name]), reference(name)(*COMPUTED[name])
    for a, b in zip(*((each if isinstance(each, tuple) else (each,)) for each in (made, wanted)), strict=True):
        unit = 2.0**-7 if b.dtype == bfloat16 else 2.0**-18
        assert np.abs(a.astype(np.float64) - b.astype(np.float64)).max() <= unit * np.abs(b.astype(np.float64)).max()


REFUSED: dict[str, tuple[Any, ...]] = {
    "cross_entropy_forward": (normal(3, 9), np.zeros(3, np.int32)),
    "find_nonzero_indices": (normal(9, 3),),
    "gpsimd_topk": (normal(2, 60).astype(bfloat16), create_gpsimd_topk_config((2, 60), nl.bfloat16, 3)),
    "topk": (normal(2, 60), 3),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_an_older_target_lacks_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(KernelLimit) as caught:
        kernel(name)(*REFUSED[name])
    assert caught.value.code == "nkilib.target" and "NeuronCore-v2" in caught.value.message


def test_the_newest_target_finds_the_same_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    x, found = normal(2, 3000), []
    for target in ("trn2", "trn3"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        found.append(topk(x, 50))
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
