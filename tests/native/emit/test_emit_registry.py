"""Every instruction of every legal example, by NumPy and by its row kernel: all bytes are the same."""

from __future__ import annotations

import copy

import pytest

import nki
from tests.isa.executed import all_examples
from tests.isa.registry import Legal
from tests.native.emit.emit_cases import compared
from tests.support import environment

_TRACED = (
    "activation",
    "activation_reduce",
    "activate2",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "dma_copy",
    "exponential",
    "iota",
    "memset",
    "range_select",
    "reciprocal",
    "scalar_tensor_tensor",
    "select_reduce",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
)
"""What the examples show to have row kernels."""

_SAMPLE = 9
"""One of so many examples is executed in the short test."""


def _legal() -> list[Legal]:
    return [example for example in all_examples() if isinstance(example, Legal)]


def _run(examples: list[Legal], all_targets: bool) -> tuple[dict[str, set[str]], dict[str, int]]:
    refusals: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    with compared(refusals, counts):
        for example in examples:
            for target in example.targets if all_targets else example.targets[-1:]:
                made = nki.simulate(nki.jit(example.kernel))
                with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
                    (made if example.lnc is None else made[example.lnc])(*copy.deepcopy(example.arguments()))
    return refusals, counts


@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_the_examples() -> None:
    examples = [example for example in _legal() if example.instruction in _TRACED]
    _, counts = _run(examples[::_SAMPLE], all_targets=False)
    assert sum(counts.values()) > 30


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_examples() -> None:
    refusals, counts = _run(_legal(), all_targets=True)
    print("forms that agree:", dict(sorted(counts.items())))
    print("without a row kernel:", {name: sorted(reasons) for name, reasons in sorted(refusals.items())})
    assert set(_TRACED) <= set(counts)
