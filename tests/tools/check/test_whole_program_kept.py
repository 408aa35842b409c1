"""`nki check --all`: skipped rows, predicates, accumulators, indices by iota, and what two cores do together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.kernels import write
from tests.tools.running import nki_json

HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
"""
TAIL = "nisa.dma_copy(dst=out, src=x)\nreturn out"


def found(folder: Path, body: str, cores: int = 1, code: int = 0, whole: bool = True) -> dict[str, Any]:
    """The findings of a kernel with that body, by code."""
    text = body if "return" in body else body + "\n" + TAIL
    lines = [f"    {line}\n" for line in text.splitlines()]
    folder = folder / str(len(list(folder.iterdir())))  # sources are read once
    folder.mkdir()
    words = ["--arg", "a=128x64:float32", "--target", "trn2", *(["--lnc", str(cores)] if cores > 1 else [])]
    file = write(folder, HEAD + "".join(lines))
    told = nki_json("check", *(["--all"] if whole else []), file, *words, code=code)
    return {finding["code"]: finding for finding in told["findings"]}


GATHER = """
i = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
nisa.iota(dst=i, pattern=[[1, 1]], offset={offset}, channel_multiplier=1)
y = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
{first}
nisa.dma_copy(dst=y, src=a.vector_select(0, i){mode})
nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
"""
SKIP = ", oob_mode=nisa.oob_mode.skip"
FILL = "nisa.memset(dst=y, value=7.0)"
SCATTER = """
i = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
nisa.iota(dst=i, pattern=[[1, 1]], offset={offset}, channel_multiplier=1)
nisa.dma_copy(dst=out.vector_select(0, i), src=x)
return out
"""
PREDICATED = """
m = nl.ndarray((128, 64), dtype=nl.uint8, buffer=nl.sbuf)
y = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
nisa.tensor_scalar(dst=m, data=x, op0=nl.greater, operand0=0.0)
{first}
nisa.tensor_copy_predicated(dst=y, src=x, predicate=m)
{then}
nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
"""
OTHER_HALF = "nisa.tensor_copy_predicated(dst=y, src=0.0, predicate=m, reverse_pred=True)"
SAME_HALF = "nisa.tensor_copy_predicated(dst=y, src=1.0, predicate=m)"
SUM = """
y = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
r = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
s = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
cmd = nisa.reduce_cmd
{first}
{between}
nisa.activation(dst=y, op=nl.square, data=x, reduce_op=nl.add, reduce_cmd=cmd.reduce, reduce_res=r)
nisa.tensor_scalar(dst=x, data=y, op0=nl.add, operand0=r)
nisa.dma_copy(dst=out, src=x)
return out
"""
BEGIN = "nisa.activation(dst=y, op=nl.square, data=x, reduce_op=nl.add, reduce_cmd=cmd.reset_reduce)"
ANOTHER = """nisa.activation_reduce(dst=y, op=nl.exp, data=x, reduce_op=nl.add, reduce_res=s)
nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=s)"""
ON_VECTOR = """nisa.tensor_scalar_reduce(dst=y, data=x, op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=s)
nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=s)"""
SUMS = """
{outside}
for m in range(2):
    {inside}
    for k in range(2):
        nisa.nc_matmul(dst=p, stationary=x, moving=x{flag})
    nisa.tensor_copy(dst=x[0:64, m * 32 : m * 32 + 32], src=p[:, 0:32])
"""
PSUM = "p = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)"
HALF = "nisa.dma_copy(dst=out[0:64], src=x[0:64])\nreturn out"

GUILTY = {
    "memory.uninitialized under a predicate": PREDICATED.format(first="", then=""),
    "memory.uninitialized under one predicate twice": PREDICATED.format(first="", then=SAME_HALF),
    "accumulator.undefined": SUM.format(first="", between=""),
    "accumulator.clobbered": SUM.format(first=BEGIN, between=ANOTHER),
    "psum.accumulate-finished": SUMS.format(outside=PSUM, inside="pass", flag=""),
    "psum.accumulate-finished by a flag": SUMS.format(outside=PSUM, inside="pass", flag=", accumulate=m + k > 0"),
    "access.dynamic-out-of-bounds in a gather": GATHER.format(offset=1, first="", mode=""),
    "access.dynamic-out-of-bounds before the tensor": GATHER.format(offset=-1, first="", mode=""),
    "access.dynamic-out-of-bounds in a scatter": SCATTER.format(offset=1),
    "return.partly-written": HALF,
    "access.repeated-rows": SCATTER.format(offset=0).replace("channel_multiplier=1", "channel_multiplier=0"),
}
INNOCENT = {
    "skipped rows": GATHER.format(offset=64, first=FILL, mode=SKIP),
    "rows inside": GATHER.format(offset=0, first="", mode=""),
    "scattered rows inside": SCATTER.format(offset=0),
    "filled before a predicate": PREDICATED.format(first=FILL, then=""),
    "both halves": PREDICATED.format(first="", then=OTHER_HALF),
    "a sum": SUM.format(first=BEGIN, between=""),
    "a sum beside one of Vector": SUM.format(first=BEGIN, between=ON_VECTOR),
    "a sum of its own": SUMS.format(outside="", inside=PSUM, flag=""),
    "a sum that begins": SUMS.format(outside=PSUM, inside="pass", flag=", accumulate=k > 0"),
}


@pytest.mark.parametrize("case", GUILTY)
def test_a_kernel_that_has_it(tmp_path: Path, case: str) -> None:
    code = case.partition(" ")[0]
    refused = code == "access.dynamic-out-of-bounds"
    told = found(tmp_path, GUILTY[case], code=int(refused))
    assert list(told) == [code]
    assert told[code]["severity"] == ("error" if refused else "warning")
    assert told[code]["fix"] and "kernels.py" in str(told[code]["location"])
    if refused:
        assert list(found(tmp_path, GUILTY[case], code=1, whole=False)) == [code]


@pytest.mark.parametrize("case", INNOCENT)
def test_a_close_one_that_has_nothing(tmp_path: Path, case: str) -> None:
    assert found(tmp_path, INNOCENT[case]) == {}


def test_a_fill_that_no_row_keeps_is_dead(tmp_path: Path) -> None:
    assert list(found(tmp_path, GATHER.format(offset=0, first=FILL, mode=""))) == ["lint.dead-store"]


# --- two cores

MEET = """
core = nl.program_id(0)
y = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
if core == 0:
    {zero}
else:
    {one}
nisa.dma_copy(dst=out[core * 64 : core * 64 + 64], src={read}[0:64])
return out
"""
BARRIER = "nisa.core_barrier(out, cores=(0, 1))"


def swap(columns: int, pipe: int = 0) -> str:
    part = f"[:, 0:{columns}]"
    return f"nisa.sendrecv(src=x{part}, dst=y{part}, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id={pipe})"


@pytest.mark.parametrize(
    ("zero", "one", "says"),
    [
        (BARRIER, swap(64), "meets another instruction: core 0 is at nisa.core_barrier at"),
        (swap(64), BARRIER, "meets another instruction: core 0 is at nisa.sendrecv at"),
        (swap(64), swap(32), "one core sends float32[128, 64] in sbuf, and the other one receives float32[128, 32]"),
        (swap(64), swap(64, 1), "pipe_id is 1 here and 0 on the other core"),
        ("pass", BARRIER, "the other core meets 0 times"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_cores_that_meet_in_different_instructions(tmp_path: Path, zero: str, one: str, says: str, whole: bool) -> None:
    told = found(tmp_path, MEET.format(zero=zero, one=one, read="x"), cores=2, code=1, whole=whole)
    assert says in told["schedule.meeting"]["message"]
    assert told["schedule.meeting"]["severity"] == "error"


@pytest.mark.parametrize(("zero", "one", "read"), [(BARRIER, BARRIER, "x"), (swap(64), swap(64), "y")])
def test_cores_that_meet(tmp_path: Path, zero: str, one: str, read: str) -> None:
    assert found(tmp_path, MEET.format(zero=zero, one=one, read=read), cores=2) == {}


LOOPS = """
core = nl.program_id(0)
rows = out.reshape((16, 8, 64))
for i in nl.dynamic_range({first}, {last}):
    nisa.dma_copy(dst=rows.select(0, i), src=x[0:8])
return out
"""


def test_loops_of_two_cores_that_share_a_row(tmp_path: Path) -> None:
    told = found(tmp_path, LOOPS.format(first="core * 8", last="9 + core * 7"), cores=2)
    assert list(told) == ["cores.race"]
    assert "bytes 16384:18432" in told["cores.race"]["message"]


@pytest.mark.parametrize("step", ["", ", 2"])
def test_loops_of_two_cores_that_share_none(tmp_path: Path, step: str) -> None:
    last = f"8 + core * 8{step}" if not step else "15 + core, 2"
    assert found(tmp_path, LOOPS.format(first="core * 8" if not step else "core", last=last), cores=2) == {}
