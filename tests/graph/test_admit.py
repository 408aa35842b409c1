"""Models that no compiler should work on: refused at once, with a code, and the process goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nki.core import nesting
from nki.core.isolated import ends_by
from nki.core.nesting import too_deep
from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from nki.graph.stablehlo import mlir
from tests.tools.running import nki

T = "tensor<4xf32>"


def function(name: str, *body: str, kind: str = T) -> str:
    return (
        f"func.func {'' if name == 'main' else 'private '}@{name}(%x: {kind}) -> {kind} {{\n{chr(10).join(body)}\n}}\n"
    )


def calls(name: str, callee: str, times: int = 1) -> str:
    lines = [f"%{n} = func.call @{callee}(%{n - 1 if n else 'x'}) : ({T}) -> {T}" for n in range(times)]
    return function(name, *lines, f"return %{times - 1} : {T}")


def same(kind: str) -> str:
    return function("main", f"%0 = stablehlo.add %x, %x : {kind}", f"return %0 : {kind}", kind=kind)


ADD = function("f30", f"%0 = stablehlo.add %x, %x : {T}", f"return %0 : {T}")
REFUSED = {
    "a function that calls itself": (calls("main", "main"), "graph.recursion"),
    "functions that call each other": (calls("main", "a") + calls("a", "b") + calls("b", "a"), "graph.recursion"),
    "calls that double": (
        "".join(calls(f"f{n}", f"f{n + 1}", 2) for n in range(30)) + ADD + calls("main", "f0"), "graph.size",
    ),
    "a dimension that no integer holds twice": (same("tensor<9223372036854775807x4xf32>"), "graph.memory"),
    "a value that no memory holds": (same("tensor<4294967296x4294967296xf32>"), "graph.memory"),
    "a value between that no memory holds": (
        function("main", f"%0 = stablehlo.broadcast_in_dim %x, dims = [1] : ({T}) -> tensor<8589934592x4xf32>",
                 "%1 = stablehlo.slice %0 [0:1, 0:4] : (tensor<8589934592x4xf32>) -> tensor<1x4xf32>",
                 f"%2 = stablehlo.reshape %1 : (tensor<1x4xf32>) -> {T}", f"return %2 : {T}"), "graph.memory",
    ),
    "deep nesting": (f"module attributes {{a = {'[' * 100_000}{']' * 100_000}}} {{}}", "graph.parse"),
    "a deep type": (f"func.func @main(%x: {'tuple<' * 5000}f32{'>' * 5000})", "graph.parse"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_is_refused_at_once(name: str) -> None:
    text, code = REFUSED[name]
    with pytest.raises(GraphError) as caught:
        compile_module(text, target="trn2")
    assert caught.value.code == code


def test_calls_that_are_no_bomb_are_compiled() -> None:
    text = calls("main", "a", 3) + calls("a", "f30", 2) + ADD
    assert compile_module(text, target="trn2").report.operations


def test_brackets_in_texts_and_comments_do_not_count() -> None:
    assert too_deep("[" * 257 + "]" * 257) == 257
    for text in (
        "[" * 256 + "]" * 256,
        '"' + "[" * 999 + '"',
        "// " + "(" * 999 + "\n",
        "(a) -> (b)" * 999,
        "<=" * 999,
    ):
        assert too_deep(text) == 0


def test_a_process_of_its_own_dies_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ends_by(os.abort) == "SIGABRT" and ends_by(lambda: 1 / 0) == "" and ends_by(lambda: os._exit(3)) == ""
    monkeypatch.setattr(nesting, "MOST", 1 << 30)
    deep = tmp_path / "deep.mlir"
    deep.write_text(REFUSED["deep nesting"][0])
    assert mlir.survives(deep.read_text()) == "SIGSEGV"
    for words, code in ((("cc", str(deep)), 1), (("opt", str(deep), "--passes", ""), 1)):
        assert "ends a process by SIGSEGV" in nki(*words, code=code).stderr


@pytest.mark.parametrize("words", [("cc", "{}"), ("opt", "{}", "--passes", ""), ("run", "{}", "--target", "trn2")])
def test_files_that_never_end_are_not_read(words: tuple[str, ...], tmp_path: Path) -> None:
    pipe = tmp_path / f"pipe.{'neff' if words[0] == 'run' else 'mlir'}"
    os.mkfifo(pipe)
    endless = tmp_path / f"endless{pipe.suffix}"
    endless.symlink_to("/dev/zero")
    for file in (pipe, endless):
        result = nki(*(word.format(file) for word in words), code=2 if words[0] == "cc" else 1)
        assert "no regular file" in result.stderr or "is no file" in result.stderr


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "x.mlir").write_bytes(b"\xff\x00garbage")
    assert "cc.model" in nki("cc", str(tmp_path / "x.mlir"), code=2).stderr
    assert "ir.parse" in nki("opt", str(tmp_path / "x.mlir"), "--passes", "", code=1).stderr
