"""The gate: what goes through it, its hash, and what it loads."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import VerificationError
from nki.driver.gate import through_ir
from nki.spec.engine import engine
from nki.target.load import load_target
from nki.testing.equality import differences
from tests.ir.kernels import array, looped, scaled_sum, traced
from tests.support import both, environment

TARGET = load_target("trn2")


def test_programs_come_back_equal_with_a_hash() -> None:
    programs = traced(scaled_sum, array(), array(), lnc=2)
    back, digest, *_ = through_ir(programs, TARGET)
    assert [differences(a, b) for a, b in zip(programs, back, strict=True)] == [[], []]
    assert re.fullmatch("[0-9a-f]{64}", digest)


def test_the_hash_is_of_the_program() -> None:
    same = {through_ir(traced(scaled_sum, array(), array()), TARGET).kernel_hash for _ in range(3)}
    assert len(same) == 1
    other = through_ir(traced(looped, array()), TARGET).kernel_hash
    (changed,) = traced(scaled_sum, array(), array())
    item = changed.body.items[2]
    changed.body.items[2] = item._replace(arguments=item.arguments._replace(operand0=0.25))
    assert len({*same, other, through_ir([changed], TARGET).kernel_hash}) == 3


SCRIPT = """
import sys, numpy as np, nki, nki.isa as nisa, nki.language as nl
def kernel(a):
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.tensor_tensor(dst=x, data1=x, data2=x, op=nl.add)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out
from nki.driver.launch import Launch, trace_only
from nki.driver.gate import through_ir
from nki.options import Options
from nki.target.load import load_target
target = load_target("trn2")
(tracer,) = trace_only(Launch(kernel), (np.zeros((8, 8), np.float32),), {}, target, Options())
print(through_ir([tracer.program], target).kernel_hash)
"""


def test_the_hash_is_the_same_in_every_process_and_place(tmp_path: Path) -> None:
    digests = set()
    for name, seed in (("one", "1"), ("two", "2")):
        script = tmp_path / name / "kernel.py"
        script.parent.mkdir()
        script.write_text("# a comment\n" * int(seed) + SCRIPT)
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(nki.__file__).parent.parent)}
        result = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
        digests.add(result.stdout)
    assert len(digests) == 1


def test_importing_nki_and_running_eagerly_load_no_mlir(tmp_path: Path) -> None:
    lines = "x = nki.simulate(kernel)(np.ones((8, 8), np.float32)); assert x[0, 0] == 2"
    code = SCRIPT.partition("from nki.driver")[0] + lines + "\nprint(*[m for m in sys.modules if 'mlir' in m])"
    with_path = {"PYTHONPATH": str(Path(nki.__file__).parent.parent)}
    script = tmp_path / "kernel.py"
    script.write_text(code)
    result = subprocess.run([sys.executable, script], env=with_path, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_broken_rule_does_not_pass_the_gate() -> None:
    (program,) = traced(scaled_sum, array(), array())
    program.body.items[3] = program.body.items[3]._replace(engine=engine.tensor)
    with pytest.raises(VerificationError) as caught:
        through_ir([program], TARGET)
    assert caught.value.code == "instruction.engine"
    assert caught.value.location == program.body.items[3].location


def test_a_rule_that_is_switched_off_is_off_in_the_gate_too() -> None:
    def kernel(a):
        x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a)
        nisa.memset(dst=x[:, 0:4], value=0.5)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with environment(NKI_DISABLE_RULES="memset.value-kind"):
            both(kernel, np.ones((8, 8), np.int32))


def test_results_of_loops_and_cores_are_equal_in_both_modes() -> None:
    both(scaled_sum, array(), array(), lnc=2)
