"""Every call of the runtime with every kind of thing that it does not take: always an error with a code."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki.core.errors import NkiError
from nki.graph.compile import compile_module
from nki.runtime import (
    Loaded,
    Model,
    NrtError,
    Runtime,
    Status,
    Tensor,
    load_model,
    run_ranks,
    show_ranges,
    write_system_trace,
)
from tests.graph.test_executable import MODEL

ODD = [
    None, 1, -1, 1.5, True, "x", "", b"x", [], [1, "a"], {}, {"x": 1}, {1: 1}, (), (1, 2), (-1,), (1 << 70,), object(),
    np.zeros(3), float("nan"), np.int64(2), lambda: 0, ["a", ["b"]], np.float32, 10**30, "\0",
]  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Model:
    return compile_module(MODEL, target="trn2", name="affine").model


def _calls(runtime: Runtime, model: Model, folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Each call with arguments that it takes."""
    loaded = runtime.load(model)
    inputs, outputs = runtime.tensors_of(loaded)
    spare, x = runtime.load(model), runtime.allocate((2,), "float32")
    arrays = [np.zeros((200, 32), np.float32), np.zeros(32, np.float32)]
    return {
        "Runtime": (Runtime, {"target": "trn2", "devices": 1}),
        "load": (runtime.load, {"model": model, "core": 0}),
        "allocate": (runtime.allocate, {"shape": (2,), "dtype": "float32", "core": 0, "name": "x"}),
        "tensors_of": (runtime.tensors_of, {"loaded": loaded}),
        "write": (runtime.write, {"tensor": x, "array": np.zeros(2, np.float32)}),
        "read": (runtime.read, {"tensor": x}),
        "execute": (runtime.execute, {"loaded": loaded, "inputs": inputs, "outputs": outputs, "timeout": 60.0}),
        "free": (runtime.free, {"tensor": x}),
        "unload": (runtime.unload, {"loaded": spare}),
        "reset": (runtime.reset, {"core": 0}),
        "memory": (runtime.memory, {"core": 0}),
        "run": (model.run, {"arrays": arrays, "donate": False}),
        "save": (model.save, {"path": folder / "saved.neff"}),
        "load_model": (load_model, {"path": folder / "model.neff", "options": None}),
        "run_ranks": (run_ranks, {"kernel": lambda: None, "arguments": [()], "keywords": None, "parallel": True}),
        "show_ranges": (show_ranges, {"framework": "x", "make": None}),
        "write_system_trace": (write_system_trace, {"spans": [], "file": folder / "t.pftrace", "profile": None}),
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore::nki.report.NkiWarning")
def test_no_call_gives_a_bare_error(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model.save(tmp_path / "model.neff")
    bare, tried = [], 0
    with Runtime("trn2") as runtime:
        calls = _calls(runtime, model, tmp_path)
        for name, (call, arguments) in calls.items():
            assert set(arguments) == set(inspect.signature(call).parameters), name
            for wrong in ({"bad": 1}, None, *({each: odd} for each in arguments for odd in ODD)):
                tried += 1
                try:
                    call(**({} if wrong is None else {**arguments, **wrong}))
                except NkiError as error:
                    assert error.fix and error.message
                except Exception as error:  # noqa: BLE001 - that is what is looked for
                    bare.append(f"{name}({wrong}): {error!r}")
        show_ranges("x", None)
        assert not bare, bare
        assert tried > 700
    ones = [np.ones((200, 32), np.float32), np.ones(32, np.float32)]
    assert np.array_equal(model.run(ones).results[0][0, :2], [1, 2])


def test_what_is_wrong_is_said(model: Model) -> None:
    with Runtime("trn2") as runtime:
        for call, code, says in (
            (lambda: runtime.load(model, "0"), "runtime.argument", "core is str '0'"),
            (lambda: runtime.allocate(4, "float32"), "runtime.argument", "shape is int 4"),
            (lambda: runtime.read("x"), "runtime.handle", "tensor is str 'x'"),
            (lambda: runtime.execute(runtime.load(model), [], {}), "runtime.argument", "inputs is list []"),
            (runtime.write, "runtime.argument", "missing a required argument: 'tensor'"),
        ):
            with pytest.raises(NrtError) as caught:
                call()
            assert caught.value.code == code and says in caught.value.message
            assert caught.value.status in (Status.INVALID, Status.INVALID_HANDLE)
        made = runtime.allocate([2, np.int64(3)], "float32", core=np.int32(1))
        assert isinstance(made, Tensor) and made.shape == (2, 3) and made.core == 1
        assert isinstance(runtime.load(model, np.int64(2)), Loaded)
