"""A process that is forked while other threads work: its locks are open, and what they protect is whole."""

from __future__ import annotations

import ast
import os
import threading
from pathlib import Path

import pytest

import nki
from nki.core.locks import lock, rlock
from tests.forked import statuses

SOURCES = Path(nki.__file__).parent
_MADE_ELSEWHERE = {
    "core/locks.py",
    "core/crew.py",  # of a thread itself, which a forked process does not have
}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")


def test_locks_are_plain_ones() -> None:
    assert type(lock()) is type(threading.Lock())
    assert type(rlock()) is type(threading.RLock())


def test_no_other_locks_are_made() -> None:
    """`threading.Lock` and what is built on it stay as they are in a forked process."""
    kinds = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "allocate_lock"}
    kinds.add("cached_property")  # which has one, before Python 3.12
    found = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text if any(kind in text for kind in kinds) else "")):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            taken = [name.name for name in node.names] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module, taken = node.value.id, [node.attr]
            if module in ("threading", "_thread", "functools") and kinds & set(taken):
                found.add(path.relative_to(SOURCES).as_posix())
    assert found == _MADE_ELSEWHERE | {"frontend/dependencies/value_contents.py"}  # which knows those of users


def test_locks_are_open_in_a_forked_process(tmp_path: Path) -> None:
    code = """
from nki.core.locks import cached_property, lock, rlock

class Object:
    @cached_property
    def slow(self):
        if os.getpid() == PARENT:
            there.set()
            over.wait()
        return 1

def take(held):
    assert held.acquire(timeout=2)
    held.release()

one, other = lock(), rlock()
while_held(lambda: one, lambda: take(one))
while_held(lambda: other, lambda: take(other))

PARENT, there, over = os.getpid(), threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: Object().slow)
thread.start()
assert there.wait(PATIENCE)
print(status(lambda: Object().slow))
over.set()
thread.join()
"""
    assert statuses(code, tmp_path) == ["0", "0", "0"]


def test_a_fork_leaves_a_lock_to_the_thread_that_has_it(tmp_path: Path) -> None:
    code = """
from contextlib import nullcontext
from nki.core.locks import rlock
held = rlock()

def child():
    tried = []
    thread = threading.Thread(target=lambda: tried.append(held.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert tried == [False]
    held.release()

with held:
    while_held(nullcontext, child)
"""
    assert statuses(code, tmp_path) == ["0"]


def test_what_depends_on_threads_begins_anew(tmp_path: Path) -> None:
    code = """
from nki.core.locks import lock, renewed

class Object:
    def __init__(self):
        self.held, self.begun = lock(), 0
        renewed(self)

    def begin_anew(self):
        with self.held:
            self.begun += 1

one, gone = Object(), Object()
del gone

def child():
    assert one.begun == 1

while_held(lambda: one.held, child)
assert one.begun == 0
"""
    assert statuses(code, tmp_path) == ["0"]


def test_a_forked_process_looks_for_garbage(tmp_path: Path) -> None:
    code = """
import gc
from nki.core.collector import paused_collector

def child():
    assert gc.isenabled()

def own():
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()

while_held(paused_collector, child)
while_held(paused_collector, own)
gc.disable()
with paused_collector():
    pass
assert not gc.isenabled()
"""
    assert statuses(code, tmp_path) == ["0", "0"]


_KERNEL = """
import numpy as np
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def doubled(a):
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.tensor_tensor(dst=x, data1=x, data2=x, op=nl.add)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out

def child():
    a = np.ones((4, 8), np.float32)
    assert (np.asarray(doubled(a)) == 2).all()
"""

_HOLD = {
    "compiles": """
from nki.ir.context import session, shared_context
hold = lambda: session(shared_context())
""",
    "compiles to machine code": """
os.environ["NKI_NATIVE"] = "always"
from contextlib import ExitStack
from nki.native.objects import jit, library
from nki.native.run import team
from nki.options import from_environment

def hold():
    held = ExitStack()
    for each in (library.library(from_environment())._lock, jit._LOCK, team._BUSY):
        held.enter_context(each)
    return held
""",
    "calls the same kernel": """
os.environ["NKI_NATIVE"] = "always"
from nki.kernel import Kernel
a = np.ones((4, 8), np.float32)
doubled(a)
from contextlib import ExitStack
import gc
from nki.driver.compiled import Kept

def hold():
    held = ExitStack()
    kept = [each for each in gc.get_objects() if isinstance(each, Kept)]
    assert kept and kept[0]._native is not None
    for each in kept:
        held.enter_context(each._lock)
        held.enter_context(each._native._lock)
    return held
""",
}


@pytest.mark.parametrize("what", _HOLD)
def test_kernels_run_in_a_process_that_is_forked_while_another_thread(what: str, tmp_path: Path) -> None:
    assert statuses(_KERNEL + _HOLD[what] + "\nwhile_held(hold, child)\n", tmp_path) == ["0"]
