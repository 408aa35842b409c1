"""Every call of the integrations and of kernels with every kind of thing that it does not take: errors with codes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nki
import nki.interop.jax as nki_jax
import nki.interop.torch as nki_torch
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.graph.compile import compile_module
from tests.graph.test_executable import MODEL

ODD = [
    None, 1, -1, 1.5, True, "x", "", b"x", [], [1, "a"], {}, {"x": 1}, {1: 1}, (), (1, 2), (-1,), (1 << 70,), object(),
    np.zeros(3), float("nan"), lambda *_: 0, ["a", ["b"]], np.float32, 10**30, "\0", print,
]  # fmt: skip


def _copy(x: Any) -> Any:
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=result, src=tile)
    return result


def _body(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def _torch_compiled(**options: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(lambda x: x + 1, backend="neuron", options=options)(torch.ones(2))


def _operator(**given: Any) -> Any:
    options = {"name": f"misuse::op{next(_NUMBERS)}", "fn": _body, "mutates_args": (), **given}
    return nki_torch.nki_op(options.pop("name"), options.pop("fn"), **options)


_NUMBERS = itertools.count()


def _jax_compiled(**given: Any) -> Any:
    return nki_jax.compile(**given)(3)


def _calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Each call with arguments that it takes, by name."""
    setting = {"target": "trn2", "lnc": 1, "patterns": None, "dump_dir": ""}
    numbers = {"donate_argnums": (), "static_argnums": (), "static_argnames": ()}
    tuning = {"key": None, "budget": None, "tolerance": None, "processes": None, "pinned": None}
    return {
        "wrap_nki": (nki_torch.wrap_nki, {"kernel": _copy}),
        "eager_on": (nki_torch.eager_on, {"place": "device"}),
        "nki_op": (_operator, {"name": "a::b", "fn": _body, "mutates_args": (), "device_types": None, "schema": None}),
        "profile": (nki.profile, {"kernel": _copy}),
        "benchmark": (nki.benchmark, {"kernel": _copy, "warmup_iter": 1, "benchmark_iter": 1, "mode": "device"}),
        "Config": (nki.Config, {"arguments": {"n": 1}, "lnc": None, "compile_config": None}),
        "autotune": (lambda **given: nki.autotune(**given)(nki.jit(_copy)), {"configs": [{"n": 1}], **tuning}),
        "jax.compile": (_jax_compiled, {"function": lambda x: x, **setting, **numbers, "fallback": ""}),
        "compile_module": (compile_module, {"module": MODEL, "setting": None, **setting, "name": "m"}),
        "torch.compile": (_torch_compiled, {**setting, "fallback": ""}),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _calls())
def test_no_call_gives_a_bare_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, arguments = _calls()[name]
    bare, coded = [], 0
    for each in arguments:
        for odd in ODD:
            if each == "function" and callable(odd):
                continue  # what goes wrong inside of it is for its author
            try:
                call(**{**arguments, each: odd})
            except NkiError as error:
                coded += 1
                assert error.fix and error.message
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                bare.append(f"{each}={odd!r}: {error!r}")
    assert not bare, bare[:20]
    assert coded > 18 * len(arguments)


@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_is_said() -> None:
    calls: dict[str, tuple[Callable[[], Any], str]] = {
        "compile_module got lnc=str '2'": (lambda: compile_module(MODEL, lnc="2"), "graph.setting"),
        "compile_module got taget=": (lambda: compile_module(MODEL, taget="trn2"), "graph.setting"),
        "compile got static_argnums=int 3": (lambda: nki_jax.compile(_copy, static_argnums=3), "jax.compile-options"),
        "compile got patterns=list ['atention']": (
            lambda: nki_jax.compile(_copy, patterns=["atention"]), "jax.compile-options",
        ),
        "got target=int 2": (lambda: _torch_compiled(target=2), "torch.compile-options"),
        "nki_op got mutates_args=int 1": (lambda: _operator(mutates_args=1), "torch.operator-schema"),
    }  # fmt: skip
    for says, (call, code) in calls.items():
        with pytest.raises(NkiError) as caught:
            call()
        assert caught.value.code == code and says in caught.value.message
