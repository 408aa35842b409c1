"""`check_any_order` passes kernels that are right, and names the order in which a schedule lets one go wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.spec.program import Program
from nki.testing import any_order, check_any_order

A = np.arange(32, dtype=np.float32).reshape(4, 8)


@nki.jit
def doubled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, value=nl.add(tile, tile))
    return out


def test_a_kernel_computes_the_same_in_every_order() -> None:
    before = A.copy()
    assert check_any_order(doubled, A) > 6
    np.testing.assert_array_equal(A, before)


def test_a_schedule_without_waits_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = any_order.compiled

    def careless(prepared: Any) -> Any:
        made = real(prepared)
        return replace(made, programs=tuple(_without_waits(program) for program in made.programs))

    monkeypatch.setattr(any_order, "compiled", careless)
    with pytest.raises(AssertionError, match=r"doubled: result 0 differ under Policy\(kind='"):
        check_any_order(doubled, A)


def _without_waits(program: Program) -> Program:
    body = program.body
    sync = [None if each is None else each._replace(waits=()) for each in body.sync or ()]
    return replace(program, body=replace(body, sync=sync))


def test_importing_it_loads_nothing_of_the_compiler() -> None:
    code = "import sys, nki.testing; print(sorted(n for n in sys.modules if n.startswith(('nki.testing.', 'nki.asm'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    import nki.testing

    with pytest.raises(AttributeError, match=r"nki\.testing"):
        _ = nki.testing.nothing
    assert all(hasattr(nki.testing, name) for name in nki.testing.__all__)
