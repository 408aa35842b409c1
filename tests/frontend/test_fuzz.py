"""Random malformed calls: every one is accepted or refused with an error of ours, never a bare exception."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.core.access import DynamicSlice
from nki.core.errors import NkiError
from nki.isa import alu
from nki.spec.instruction import REGISTRY, Instruction
from nki.spec.operator import Operator
from tests.support import environment

pytestmark = pytest.mark.filterwarnings("ignore:.*return.nothing:nki.report.NkiWarning")  # kernels for one line

CALLS = 2000
SEED = 20260801

DTYPES = [dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.uint8, dtypes.uint16, dtypes.uint32]
JUNK: list[Any] = [
    None,
    "text",
    b"bytes",
    [],
    {},
    (),
    [1, 2],
    -1,
    0,
    1,
    7,
    10**12,
    1.5,
    float("nan"),
    True,
    object(),
    np.float32(2),
    np.arange(4),
    slice(0, 2),
    Ellipsis,
    int,
    nl,
    DynamicSlice(0, 1),
]
OPERATORS = [v for v in vars(alu).values() if isinstance(v, Operator)]
KINDS = (nisa.engine, nisa.reduce_cmd, nisa.dge_mode, nisa.oob_mode, nisa.matmul_perf_mode)
METHODS = ["[]", "slice", "select", "permute", "broadcast", "expand_dim", "squeeze_dim", "reshape_dim"]
METHODS += ["flatten_dims", "reshape", "rearrange", "view", "ap", "vector_select", "indirect"]
ENUMS = [member for kind in KINDS for member in kind]


def tensors(r: random.Random, given: Any) -> list[Any]:
    """A handful of tensors of all kinds, some of them written."""
    made = [given]
    for region, shape in (
        (nl.sbuf, (128, 64)),
        (nl.sbuf, (32, 8)),
        (nl.sbuf, (128, 1)),
        (nl.psum, (128, 64)),
        (nl.sbuf, (16, 4, 8)),
        (nl.shared_hbm, (128, 64)),
        (nl.sbuf, (1, 1)),
    ):
        tile = nl.ndarray(shape, r.choice(DTYPES), buffer=region)
        made.append(tile)
        made.append(tile[0 : r.randint(1, shape[0])])
    return made


def value(r: random.Random, pool: list[Any]) -> Any:
    kind = r.random()
    if kind < 0.5:
        return r.choice(pool)
    if kind < 0.65:
        return r.choice(OPERATORS)
    if kind < 0.8:
        return r.choice(ENUMS)
    return r.choice(JUNK)


def one_call(r: random.Random, given: Any) -> str:
    """Call a random instruction with random arguments; returns its name."""
    instruction: Instruction[Any] = r.choice(list(REGISTRY.values()))
    pool = tensors(r, given)
    names = list(instruction.operands)
    args = [value(r, pool) for _ in range(r.randint(0, len(names) + 1))]
    kwargs = {name: value(r, pool) for name in r.sample(names, r.randint(0, len(names)))}
    if r.random() < 0.05:
        kwargs["nonsense"] = 1
    if r.random() < 0.4:  # operands of one size, so that some calls are legal
        tile = nl.ndarray((64, 16), r.choice(DTYPES))
        nisa.memset(tile, 1)
        pool = [tile, tile, tile, tile[:, 0:1]]
    if r.random() < 0.6:  # mostly well formed, so that the deeper rules are reached
        args = []
        kwargs = {name: plausible(r, instruction, name, pool) for name in names if name != "name"}
    instruction(*args, **kwargs)
    return instruction.name


def plausible(r: random.Random, instruction: Instruction[Any], name: str, pool: list[Any]) -> Any:
    operand = instruction.operands[name]
    parameter = instruction.__signature__.parameters[name]
    if r.random() < 0.3 and parameter.default is not parameter.empty:
        return parameter.default
    match operand.kind:
        case "tensor":
            return r.choice(pool)
        case "column" | "tensor_or_number":
            return r.choice([*pool, 1.0, 2, -0.5])
        case "tensors":
            return r.choices(pool, k=r.randint(1, 3))
        case "operator":
            return r.choice(OPERATORS)
        case "enum":
            return r.choice(list(operand.choices or ENUMS))
        case "flag":
            return r.random() < 0.5
        case "int" | "number":
            return r.choice([0, 1, 8])
        case "ints":
            return r.choice([1, (1,), (1, 2), (0,), (5,), ()])
        case "pattern":
            return [[r.randint(-4, 64), r.randint(0, 64)] for _ in range(r.randint(0, 5))]
    return value(r, pool)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_malformed_calls_never_raise_a_bare_exception(target: str) -> None:
    r = random.Random(f"{SEED} {target}")
    outcomes: Counter[str] = Counter()

    def kernel(given: Any) -> Any:
        for _ in range(CALLS // 3 + 1):
            state = r.getstate()
            try:
                one_call(r, given)
                outcomes["accepted"] += 1
            except NkiError as error:
                assert error.code
                assert str(error)
                outcomes["refused"] += 1
            except Exception as error:
                r.setstate(state)
                raise AssertionError(f"bare {type(error).__name__}: {error}") from error

    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nki.simulate(kernel)(np.ones((128, 64), np.float32))
    assert outcomes["refused"] > CALLS // 6
    assert outcomes["accepted"] > 0
    assert sum(outcomes.values()) == CALLS // 3 + 1


def test_malformed_indexing_never_raises_a_bare_exception() -> None:
    r = random.Random(SEED)

    def kernel(given: Any) -> None:
        tile = nl.ndarray((64, 4, 8), nl.float32)
        for _ in range(CALLS):
            method = r.choice(METHODS)
            args = [r.choice([*JUNK, tile, given, (0, 1), (1, 0), ((64, 2), (1, 4))]) for _ in range(r.randint(1, 4))]
            target = r.choice([tile, given])
            try:
                target[args[0]] if method == "[]" else getattr(target, method)(*args)
            except NkiError as error:
                assert error.code

    nki.simulate(kernel)(np.ones((16, 8), np.float32))
