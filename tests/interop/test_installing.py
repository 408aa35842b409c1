"""What is registered with frameworks: by `install` of the two public modules, once, and by no other import."""

from __future__ import annotations

import ast
import atexit
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import convert_frame
from torch._dynamo.backends import registry

import nki.interop.jax
import nki.interop.torch
from nki.driver import frameworks
from nki.interop.jax import framework as jax_framework
from nki.interop.jax.primitive import nki_call
from nki.interop.torch import framework as torch_framework
from tests.interop.torch.kernels import product
from tests.packaging.building import run

_ROOT = Path(nki.interop.__file__).parent
_FACES = {"torch/__init__.py": ["install()"], "jax/__init__.py": ["install()"]}


def _done_by_import(file: Path) -> list[str]:
    """Statements of a module that are there for what they do: calls, and entries of tables."""
    found = []
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if (isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)) or any(
            isinstance(target, ast.Subscript) for target in targets
        ):
            found.append(ast.unparse(statement))
    return found


def test_an_import_registers_nothing_but_in_the_public_modules() -> None:
    files = sorted(_ROOT.rglob("*.py"))
    assert len(files) > 40
    found = {str(file.relative_to(_ROOT)): _done_by_import(file) for file in files}
    assert {name: done for name, done in found.items() if done} == _FACES


@pytest.mark.parametrize("face", [nki.interop.jax, nki.interop.torch], ids=["jax", "torch"])
def test_installing_again_changes_nothing(face: object) -> None:
    before = _registered()
    face.install()
    assert _registered() == before


def _registered() -> tuple[object, ...]:
    return (
        atexit._ncallbacks(),
        convert_frame.ConvertFrame.__call__,
        registry.lookup_backend("neuron"),
        nki_call.impl,
        tuple(frameworks._INSTALLED),
        torch.compiler.list_backends().count("neuron"),
    )


@pytest.mark.parametrize("order", [(torch_framework, jax_framework), (jax_framework, torch_framework)])
def test_dynamo_follows_no_other_framework(order: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "_INSTALLED", [module.FRAMEWORK for module in order])
    torch.compiler.reset()
    x = torch.full((4, 8), 3.0)
    compiled = torch.compile(lambda x: product(x, x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), x * x + 1)


MODEL = """
import torch
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def double(a):
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    result = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.dma_copy(dst=result, src=tile)
    return result

print(torch.compile(lambda a: double(a) + 1, backend="neuron", fullgraph=True)(torch.ones(4, 8)).sum())

import nki.interop.torch
from nki.interop.torch_compile import neuron
from torch._dynamo.backends import registry
print(registry.lookup_backend("neuron") is neuron)
"""


def test_the_entry_point_is_the_backend_and_installs_what_kernels_in_a_model_need(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    assert run(sys.executable, "model.py", cwd=tmp_path).split() == ["tensor(96.)", "True"]
