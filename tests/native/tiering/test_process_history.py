"""Kernels that every process calls once are compiled when that pays for all of them together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nki.native.objects.library import Library
from nki.native.primitives.module import MODULE
from nki.native.records.forms import Form, Native
from nki.native.records.templates import Template
from nki.native.tiering.compilation_policy import Functions
from nki.native.tiering.process_history import Earlier

ROOT = Path(__file__).resolve().parents[3]
PLAN = "plan"
COMPILE = 0.03
"""Seconds that compiling one function is taken to need."""


class Disk(Library):
    """Keeps data between the processes of a test, and has the functions of some names."""

    def __init__(self, data: dict[str, bytes], *names: str) -> None:
        super().__init__(None, False)
        self.data = data
        self.names = names

    def has(self, name: str) -> bool:
        return name in self.names

    def kept(self, key: str) -> bytes | None:
        return self.data.get(key)

    def keep(self, key: str, data: bytes) -> None:
        self.data[key] = data

    def address(self, name: str, text: Callable[[], str]) -> int:
        raise AssertionError("nothing is compiled here")


def form(name: str) -> Form:
    """A form whose function has this name."""
    return Form(Native(Template(name, lambda: "", (), ()), (), False))


def processes_until_paid(weights: list[tuple[Form, float]], *names: str, instructions: int = 0, most: int = 500) -> int:
    """How many processes call a kernel once and do not compile it."""
    data: dict[str, bytes] = {}
    for number in range(most):
        earlier = Earlier(Functions(Disk(data, *names)), PLAN)
        if earlier.paid(weights, instructions):
            return number
        earlier.count()
    return most


def test_the_first_process_does_not_compile_for_others() -> None:
    assert processes_until_paid([(form("slow"), 2 * COMPILE)], MODULE) == 1


def test_a_large_kernel_is_compiled_at_once() -> None:
    quick = [(form(f"quick {number}"), 0.0) for number in range(9)]
    assert processes_until_paid([(form("slow"), 101 * COMPILE), *quick], MODULE) == 0
    assert processes_until_paid([(form("slow"), 99 * COMPILE), *quick], MODULE) == 1
    assert processes_until_paid([(form("slow"), 101 * COMPILE), *quick]) == 1, "the base module is lacking too"


def test_together_they_wait_as_long_as_compiling_takes() -> None:
    assert processes_until_paid([(form("one"), COMPILE / 9.5)], MODULE) == 10


def test_what_is_compiled_costs_nothing_and_saves_nothing() -> None:
    weights = [(form("there"), 9 * COMPILE), (form("lacks"), COMPILE / 4.5)]
    assert processes_until_paid(weights, MODULE, "there") == 5
    assert processes_until_paid(weights, MODULE) == 1


def test_a_plan_saves_time_even_where_numpy_needs_none() -> None:
    weights = [(form("quick"), 0.0)]
    assert processes_until_paid(weights, MODULE) == 500
    assert processes_until_paid(weights, MODULE, instructions=1_000) < 3


def test_the_base_module_is_part_of_the_price() -> None:
    weights = [(form("small"), COMPILE)]
    assert processes_until_paid(weights, MODULE) < processes_until_paid(weights) < 20


def test_nothing_is_counted_where_nothing_is_kept() -> None:
    data: dict[str, bytes] = {}
    Earlier(Functions(Disk(data)), "").count()
    assert data == {}


@pytest.mark.parametrize("noise", [b"", b"x", b"-5", b"1e9", "\u00b2".encode(), b"9" * 5_000])
def test_a_number_that_is_none_is_no_process(noise: bytes) -> None:
    data: dict[str, bytes] = {}
    Earlier(Functions(Disk(data)), PLAN).count()
    data.update(dict.fromkeys(data, noise))
    assert not Earlier(Functions(Disk(data)), PLAN).paid([(form("slow"), COMPILE)], 0)


PROCESS = """
import sys
from nki.native.tiering import process_history
from tests.native.plan.test_stored_plans import arrays, straight
import nki
process_history._PLANNING = 1.0
found = nki.jit(straight)
result, executed = found(*arrays()), found.report.executed
print(result.tobytes().hex(), executed.native, executed.interpreted, "torch_mlir" in sys.modules)
"""


@pytest.mark.slow
def test_processes_that_call_it_once_come_to_share_a_plan(tmp_path: Path) -> None:
    settings = {"NKI_CACHE_DIR": str(tmp_path), "NKI_NATIVE": "auto", "NKI_THREADS": "1"}
    variables = {**os.environ, **settings, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    variables.pop("NKI_CACHE", None)
    command = [sys.executable, "-c", PROCESS]
    outputs = [
        subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    first, second, third = outputs
    assert first[0] == second[0] == third[0]
    assert first[1:3] == ["0", "None"], "NumPy executed all of it"
    assert second[2:] == ["0", "True"], "compiled for the processes to come"
    assert third[1:] == [second[1], "0", "False"], "the compiler is not even loaded"
