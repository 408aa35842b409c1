"""`nki check --all`: for every kind of finding a kernel that has it, and a close one that has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.kernels import GOOD, SMALL, write
from tests.tools.running import nki, nki_json

HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    y = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    n = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.sbuf)
    m = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
"""
TAIL = "nisa.dma_copy(dst=out, src=x)\nreturn out"
ARRAY = ("--arg", "a=128x64:float32")

IOTA = "nisa.iota(dst=n, pattern=[[1, 64]], offset={offset}, channel_multiplier={rows})\n"
ADD = "nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\n"
SHOW = "nisa.tensor_copy(dst=y, src=n)\n" + ADD
LOOP = """
nisa.dma_copy(dst=y, src=a)
for i in nl.dynamic_range({trips}):
    nisa.tensor_copy(dst=x[:, 0:16], src=y.ap([[64, 128], [1, 16]], scalar_offset=i, indirect_dim=1))
"""
PRODUCT = """
p = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
{first}
nisa.nc_matmul(dst=p, stationary=x, moving=x, accumulate={flag})
nisa.tensor_copy(dst=x[0:64, :], src=p)
"""
ALIAS = """
s = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096))
t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, address=(0, {byte}))
nisa.memset(dst=s, value=1.0)
nisa.memset(dst=t, value=2.0)
nisa.tensor_tensor(dst=y, data1=s, data2=t, op=nl.add)
nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
"""
CORES = """
if nl.program_id(0) == 0:
    nisa.dma_copy(dst=out, src=x)
{barrier}
if nl.program_id(0) == 1:
    nisa.dma_copy(dst=x, src=out)
return out
"""
TILES = """
t = [nl.ndarray((128, {size}), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3)]
nisa.memset(dst=t[0], value=1.0)
nisa.memset(dst=t[1], value=1.0)
nisa.tensor_tensor(dst=t[2], data1=t[0], data2=t[1], op=nl.add)
nisa.tensor_tensor(dst=t[2], data1=t[2], data2=t[0], op=nl.add)
nisa.tensor_tensor(dst=y, data1=t[2][:, 0:64], data2=t[1][:, 0:64], op=nl.add)
nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
"""


def check(folder: Path, body: str, *words: str, code: int = 0, whole: bool = True) -> Any:
    """The findings of a kernel with that body, by code."""
    tail = "" if "return" in body else TAIL
    lines = [f"    {line}\n" for line in (body + "\n" + tail).splitlines()]
    folder = folder / str(len(list(folder.iterdir())))  # sources are read once
    folder.mkdir()
    flags = ("--all",) if whole else ()
    told = nki_json("check", *flags, write(folder, HEAD + "".join(lines)), *ARRAY, *words, code=code)
    return {finding["code"]: finding for finding in told["findings"]}


GUILTY = {
    "memory.uninitialized": ADD,
    "memory.uninitialized in a part": "nisa.memset(dst=y[:, 0:63], value=1.0)\n" + ADD,
    "memory.uninitialized in the first trip": (
        "for i in nl.dynamic_range(3):\n    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\n"
        "    nisa.tensor_copy(dst=y, src=x)"
    ),
    "lint.dead-store overwritten": "nisa.memset(dst=y, value=1.0)\nnisa.dma_copy(dst=y, src=a)\n" + ADD,
    "lint.dead-store in pieces": (
        "nisa.memset(dst=y, value=1.0)\nnisa.dma_copy(dst=y[:, 0:32], src=a[:, 0:32])\n"
        "nisa.dma_copy(dst=y[:, 32:64], src=a[:, 32:64])\n" + ADD
    ),
    "lint.dead-store to the end": "nisa.tensor_copy(dst=y, src=x)",
    "lint.integer-precision operand": (
        IOTA.format(offset=0, rows=200001) + "nisa.tensor_scalar(dst=n, data=n, op0=nl.add, operand0=1.0)\n" + SHOW
    ),
    "lint.integer-precision result": (
        IOTA.format(offset=0, rows=64) + "nisa.tensor_scalar(dst=n, data=n, op0=nl.multiply, operand0=4097.0)\n" + SHOW
    ),
    "lint.integer-precision on Vector": (
        "nisa.memset(dst=n, value=16777217)\nnisa.memset(dst=m, value=1)\n"
        "nisa.tensor_tensor(dst=n, data1=n, data2=m, op=nl.add, engine=nisa.engine.vector)\n" + SHOW
    ),
    "lint.exp-overflow": "nisa.memset(dst=y, value=45.0)\nnisa.activation(dst=y, op=nl.exp, data=y, scale=2.0)\n" + ADD,
    "access.dynamic-out-of-bounds": LOOP.format(trips=50),
    "psum.accumulate-unwritten": PRODUCT.format(first="", flag=True),
    "psum.accumulate-foreign": PRODUCT.format(first="nisa.memset(dst=p, value=0.0)", flag=True),
    "memory.alias": ALIAS.format(byte=4096 + 64),
    "memory.capacity": TILES.format(size=24000),
}
INNOCENT = {
    "memory.uninitialized": "nisa.memset(dst=y, value=1.0)\n" + ADD,
    "memory.uninitialized in a part": (
        "nisa.memset(dst=y[:, 0:63], value=1.0)\nnisa.memset(dst=y[:, 63:64], value=1.0)\n" + ADD
    ),
    "memory.uninitialized in the first trip": (
        "nisa.tensor_copy(dst=y, src=x)\nfor i in nl.dynamic_range(3):\n"
        "    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\n    nisa.tensor_copy(dst=y, src=x)"
    ),
    "lint.dead-store overwritten": "nisa.memset(dst=y, value=1.0)\n" + ADD + "nisa.dma_copy(dst=y, src=a)\n" + ADD,
    "lint.dead-store in pieces": (
        "nisa.memset(dst=y, value=1.0)\nnisa.dma_copy(dst=y[:, 0:32], src=a[:, 0:32])\n" + ADD
    ),
    "lint.dead-store to the end": "nisa.tensor_copy(dst=y, src=x)\n" + ADD,
    "lint.integer-precision operand": (
        IOTA.format(offset=0, rows=100000) + "nisa.tensor_scalar(dst=n, data=n, op0=nl.add, operand0=1.0)\n" + SHOW
    ),
    "lint.integer-precision result": (
        IOTA.format(offset=0, rows=64) + "nisa.tensor_scalar(dst=n, data=n, op0=nl.multiply, operand0=65536.0)\n" + SHOW
    ),
    "lint.integer-precision on Vector": (
        "nisa.memset(dst=n, value=16777217)\nnisa.memset(dst=m, value=1)\n"
        "nisa.tensor_tensor(dst=n, data1=n, data2=m, op=nl.add)\n" + SHOW
    ),
    "lint.exp-overflow": "nisa.memset(dst=y, value=44.0)\nnisa.activation(dst=y, op=nl.exp, data=y, scale=2.0)\n" + ADD,
    "access.dynamic-out-of-bounds": LOOP.format(trips=49),
    "psum.accumulate-unwritten": PRODUCT.format(first="", flag=False),
    "psum.accumulate-foreign": PRODUCT.format(first="nisa.nc_matmul(dst=p, stationary=x, moving=x)", flag=True),
    "memory.alias": ALIAS.format(byte=4096 + 256),
    "memory.capacity": TILES.format(size=16000),
}
ERRORS = {"access.dynamic-out-of-bounds", "memory.capacity"}


@pytest.mark.parametrize("case", GUILTY)
def test_a_kernel_that_has_it(tmp_path: Path, case: str) -> None:
    code = case.partition(" ")[0]
    found = check(tmp_path, GUILTY[case], "--target", "trn2", code=int(code in ERRORS))
    assert code in found, list(found)
    assert found[code]["severity"] == ("error" if code in ERRORS else "warning")
    assert found[code]["fix"]
    assert "kernels.py" in str(found[code]["location"])


@pytest.mark.parametrize("case", [case for case in GUILTY if case in ERRORS])
def test_what_a_call_refuses_is_refused_without_all(tmp_path: Path, case: str) -> None:
    """The exit code is the answer to whether a call would end with an error."""
    assert list(check(tmp_path, GUILTY[case], "--target", "trn2", code=1, whole=False)) == [case]
    assert check(tmp_path, INNOCENT[case], "--target", "trn2", whole=False).keys() <= {"memory.peak"}


@pytest.mark.parametrize("case", INNOCENT)
def test_a_close_one_that_has_nothing(tmp_path: Path, case: str) -> None:
    found = check(tmp_path, INNOCENT[case], "--target", "trn2")
    assert not found


@pytest.mark.parametrize("case", [case for case in GUILTY if case not in ("memory.alias", "memory.capacity")])
def test_a_code_can_be_switched_off(tmp_path: Path, case: str) -> None:
    code = case.partition(" ")[0]
    assert code not in check(tmp_path, GUILTY[case], "--target", "trn2", "--allow", code)


def test_races_of_two_cores(tmp_path: Path) -> None:
    found = check(tmp_path, CORES.format(barrier=""), "--lnc", "2", "--target", "trn2")
    message = found["cores.race"]["message"]
    assert "nisa.dma_copy at" in message
    assert "kernels.py:17:9 on core 0" in message
    assert "kernels.py:20:9 on core 1" in message
    safe = CORES.format(barrier="nisa.core_barrier(out, cores=(0, 1))")
    assert "cores.race" not in check(tmp_path, safe, "--lnc", "2", "--target", "trn2")


def test_cores_that_do_not_meet(tmp_path: Path) -> None:
    body = "if nl.program_id(0) == 0:\n    nisa.core_barrier(out, cores=(0, 1))\n"
    words = ("--lnc", "2", "--target", "trn2")
    for whole in (False, True):
        found = check(tmp_path, body + "return out", *words, code=1, whole=whole)
        assert {found[code]["severity"] for code in found if code.startswith("schedule.")} == {"error"}
    assert not any(
        code.startswith("schedule.") for code in check(tmp_path, "nisa.core_barrier(out, cores=(0, 1))", *words)
    )


def test_both_lines_are_named(tmp_path: Path) -> None:
    found = check(tmp_path, GUILTY["lint.dead-store overwritten"])
    assert "nisa.dma_copy at kernels.py:16 overwrites it" in found["lint.dead-store"]["message"]
    found = check(tmp_path, GUILTY["psum.accumulate-foreign"], "--target", "trn2")
    assert "nisa.memset at kernels.py:17" in found["psum.accumulate-foreign"]["message"]
    found = check(tmp_path, GUILTY["access.dynamic-out-of-bounds"], code=1)
    assert "comes from kernels.py:17" in found["access.dynamic-out-of-bounds"]["message"]


def test_what_a_later_trip_reads_is_no_dead_store(tmp_path: Path) -> None:
    body = (
        "nisa.memset(dst=y, value=0.0)\nfor i in nl.dynamic_range(3):\n    "
        + ADD
        + "    nisa.tensor_copy(dst=y, src=x)"
    )
    assert not check(tmp_path, body)


def test_a_loop_that_may_have_no_trip_proves_nothing(tmp_path: Path) -> None:
    body = (
        "nisa.memset(dst=n, value=3)\nr = nisa.register_alloc(n[0:1, 0:1])\nnisa.memset(dst=y, value=0.0)\n"
        "for i in nl.dynamic_range(r):\n    nisa.dma_copy(dst=y, src=a)\n" + ADD
    )
    assert not check(tmp_path, body)
    never_written = body.replace("nisa.memset(dst=y, value=0.0)\n", "")
    assert not check(tmp_path, never_written)


def test_a_line_is_dead_only_if_all_of_its_stores_are(tmp_path: Path) -> None:
    """The last round of an unrolled loop often prepares one that does not come."""
    body = "nisa.memset(dst=y, value=1.0)\nfor k in range(3):\n    " + ADD + "    nisa.tensor_copy(dst=y, src=x)"
    assert not check(tmp_path, body)
    words = ("--lnc", "2", "--target", "trn2")
    some = "nisa.memset(dst=y, value=1.0)\nif nl.program_id(0) == 0:\n"
    store = "    nisa.dma_copy(dst=out, src=x)\nreturn out"
    dead = check(tmp_path, some + store, *words)
    assert "nisa.memset" in dead["lint.dead-store"]["message"]
    assert not check(tmp_path, some + "    " + ADD + store, *words)


def test_the_table_of_memory(tmp_path: Path) -> None:
    shown = nki("check", "--all", write(tmp_path, GOOD), *SMALL)
    assert shown.stdout.startswith("double for trn3: accepted (0 errors, 0 warnings)\nSBUF: 32 of ")
    assert "float32[128, 8]  kernels.py:10" in shown.stdout
    told = nki_json("check", "--all", write(tmp_path, GOOD), *SMALL)
    assert told["whole"]["compiled"] is True
    assert [each["peak"] for each in told["whole"]["memory"]] == [32, 0]


def test_what_breaks_a_rule_is_not_compiled(tmp_path: Path) -> None:
    wrong = write(tmp_path, GOOD.replace("src=tile)", "src=tile[:, 0:3])"))
    assert nki_json("check", "--all", wrong, *SMALL, code=1)["whole"] is None
    assert "not compiled" in nki("check", "--all", wrong, *SMALL, code=1).stderr
    assert "whole" not in nki_json("check", wrong, *SMALL, code=1)
