"""The examples against independent references, on every target and in both modes."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from nki.tools.kernel_file import import_file
from tests.support import both, rejection

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TARGETS = ("trn1", "trn2", "trn3")


@pytest.fixture(scope="module")
def attention() -> ModuleType:
    return import_file(EXAMPLES / "flash_attention.py")


@pytest.fixture(scope="module")
def addition() -> ModuleType:
    return import_file(EXAMPLES / "tensor_add.py")


def heads(sequence: int, seed: int = 0, spread: float = 1.0) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    shapes = ((128, sequence), (128, sequence), (sequence, 128))
    return tuple((spread * generator.standard_normal(shape)).astype(ml_dtypes.bfloat16) for shape in shapes)


def by_torch(q: Any, k: Any, v: Any, causal: bool) -> np.ndarray:
    """torch's own attention in float64."""
    doubles = [torch.from_numpy(x.astype(np.float64)) for x in (q.T, k.T, v)]
    found = torch.nn.functional.scaled_dot_product_attention(*(x[None] for x in doubles), is_causal=causal)
    return np.asarray(found[0].numpy())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(attention: ModuleType, target: str, causal: bool) -> None:
    q, k, v = heads(512)
    found = both(attention.flash_attention, q, k, v, causal, target=target)
    np.testing.assert_allclose(found.astype(np.float64), by_torch(q, k, v, causal), rtol=2**-6, atol=2**-7)


def test_attention_over_several_pieces_of_keys(attention: ModuleType) -> None:
    q, k, v = heads(1024, seed=1)
    found = attention.flash_attention(q, k, v)
    np.testing.assert_allclose(found.astype(np.float64), by_torch(q, k, v, True), rtol=2**-6, atol=2**-7)


def test_scores_that_would_overflow_without_the_running_maximum(attention: ModuleType) -> None:
    q, k, v = heads(1024, seed=2, spread=12.0)
    scores = q.astype(np.float64).T @ k.astype(np.float64) / np.sqrt(128)
    assert scores.max() > 2 * np.log(np.finfo(np.float32).max)
    found = attention.flash_attention(q, k, v, causal=False).astype(np.float64)
    np.testing.assert_allclose(found, by_torch(q, k, v, False), rtol=2**-6, atol=2**-6 * 12)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_two_cores_give_the_same_bytes(attention: ModuleType, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    q, k, v = heads(512)
    one, two = attention.flash_attention(q, k, v), attention.flash_attention[2](q, k, v)
    assert one.tobytes() == two.tobytes()


def test_attention_refuses_what_it_cannot_tile(attention: ModuleType) -> None:
    q, k, v = heads(640)
    with pytest.raises(ValueError, match="multiple of 512"):
        attention.flash_attention(q, k, v)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(128, 64), (200, 33), (1, 1)])
def test_addition(addition: ModuleType, target: str, shape: tuple[int, int]) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape, np.float32) for _ in range(2))
    np.testing.assert_array_equal(both(addition.tensor_add, a, b, target=target), a + b)


def test_addition_of_different_shapes_is_refused(addition: ModuleType) -> None:
    a, b = np.ones((128, 8), np.float32), np.ones((128, 7), np.float32)
    assert rejection(addition.tensor_add, a, b).code == "access.out-of-bounds"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_use_only_what_is_public(path: Path) -> None:
    imports = re.findall(r"^(?:import|from) (\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(imports) <= {"nki", "nki.isa", "nki.language", "dataclasses"}
