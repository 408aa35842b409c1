"""Random models of many small kernels: memory that is used again and work in place change no bit of any result."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nki.graph.compile import Setting
from nki.graph.ir import Group, Value
from nki.options import from_environment
from nki.target.load import load_target
from nki.testing.adversary import Policy, run_adversely
from tests.graph import stages
from tests.graph.hand_made import EMITTERS, group, module, value

_COMPUTE = {"add": np.add, "multiply": np.multiply, "subtract": np.subtract, "maximum": np.maximum}


def _drawn(seed: int) -> tuple[list[Value], list[Group], list[Value]]:
    draw = random.Random(seed)
    arguments = [value(name, 64, 16) for name in "abc"]
    alive, body = list(arguments), []
    for number in range(25):
        made = value(f"v{number}", 64, 16)
        body.append(group(draw.choice(list(_COMPUTE)), [draw.choice(alive), draw.choice(alive)], made))
        alive = [*alive[-4:], made]
    return arguments, body, [alive[-1], alive[-3], alive[-1]]


def _expected(arguments: list[Value], body: list[Group], results: list[Value], arrays: list[np.ndarray]) -> list:
    known = dict(zip(arguments, arrays, strict=True))
    for item in body:
        left, right = item.ops[0].operands
        known[item.outputs[0]] = _COMPUTE[item.ops[0].name](known[left], known[right])
    return [known[each] for each in results]


@pytest.mark.parametrize("native", ["0", "always"])
@pytest.mark.parametrize("seed", range(6))
def test_random_models(seed, native, monkeypatch):
    monkeypatch.setenv("NKI_NATIVE", native)
    arguments, body, results = _drawn(seed)
    setting = Setting(name="drawn", target="trn2", options=from_environment(), emitters=EMITTERS)
    found = stages.compiled(module(arguments, body, *results), setting)
    assert found.report.temporary_bytes < found.report.temporary_bytes_before
    arrays = [np.random.default_rng(seed + n).uniform(-1, 1, (64, 16)).astype(np.float32) for n in range(3)]
    wanted = _expected(arguments, body, results, arrays)
    for _ in range(2):
        for one, other in zip(found.run(arrays), wanted, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("seed", range(3))
def test_any_legal_order_of_the_queues_gives_the_same_bits(seed):
    arguments, body, results = _drawn(seed)
    options, target = from_environment(), load_target("trn2")
    setting = Setting(name="drawn", target="trn2", options=options, emitters=EMITTERS)
    found = stages.compiled(module(arguments, body, *results), setting)
    arrays = [np.random.default_rng(n).uniform(-1, 1, (64, 16)).astype(np.float32) for n in range(3)]
    wanted = _expected(arguments, body, results, arrays)
    policies = [Policy("random", seed=number, in_flight=True) for number in range(3)]
    policies += [Policy(kind, queue, in_flight=True) for kind in ("late", "early") for queue in ("vector", "dma3")]
    for policy in policies:
        made = run_adversely(found.programs, [array.copy() for array in arrays], target, policy, options)
        for one, other in zip(made, wanted, strict=True):
            assert np.array_equal(one, other), policy
