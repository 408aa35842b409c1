"""Names of earlier versions say what to write instead; names that never were are plain AttributeErrors."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError, RemovedError, RemovedImportError
from nki.core.names import removed_table
from nki.isa import alu, functions
from nki.spec.operator import Operator
from tests.together import together

GONE = [
    ("nki", "baremetal", "call the kernel"),
    ("nki", "simulate_kernel", "nki.simulate(kernel)"),
    ("nki", "tensor", "nki.typing.tensor"),
    ("nki.language", "arange", "slice the tensor"),
    ("nki.language", "mgrid", "slice the tensor"),
    ("nki.language", "par_dim", "partitions first"),
    ("nki.language", "all_reduce", "nisa.sendrecv"),
    ("nki.language", "atomic_rmw", "nisa.dma_compute"),
    ("nki.language", "cast", "nl.copy(x, dtype=...)"),
    ("nki.language", "constexpr", "leave the annotation out"),
    ("nki.language", "dot", "nl.matmul"),
    ("nki.language", "float64", "nl.float32"),
    ("nki.language", "int64", "nl.int32"),
    ("nki.language", "loop_reduce", "nisa.tensor_tensor"),
    ("nki.language", "nc", "kernel[2](...)"),
    ("nki.language", "spmd_dim", "kernel[2](...)"),
    ("nki.language", "static_cast", "nl.copy(x, dtype=...)"),
    ("nki.compiler", "enable_stack_allocator", "delete the decorator"),
    ("nki.compiler", "force_auto_alloc", "delete the decorator"),
    ("nki.compiler", "skip_middle_end_transformations", "delete the decorator"),
    ("nki.compiler", "multi_buffer", "a list of tiles"),
    ("nki.compiler", "no_reorder", "nl.no_reorder()"),
    ("nki.compiler", "psum", "buffer=nl.psum"),
    ("nki.compiler", "sbuf", "buffer=nl.sbuf"),
    ("nki.isa", "tensor_copy_dynamic_src", "scalar_offset"),
    ("nki.isa", "tensor_copy_dynamic_dst", "scalar_offset"),
    ("nki", "trace", "@nki.jit"),
    ("nki.language", "bfp16", "nl.bfloat16"),
    ("nki.language", "finfo", "dtype.min"),
    ("nki.language", "gemm_grid", "slice the tensor"),
    ("nki.language", "gemm_stationary_grid", "slice the tensor"),
    ("nki.isa", "builtin_custom_op", "with instructions"),
    ("nki.isa", "fp32", "nl.float32.min"),
    ("nki.compiler", "allocation_scope", "delete it"),
]


@together("module, name, instead", GONE)
def test_removed_name_says_what_to_write(module: str, name: str, instead: str) -> None:
    owner = importlib.import_module(module)
    assert not hasattr(owner, name)
    with pytest.raises(RemovedError) as caught:
        getattr(owner, name)
    assert isinstance(caught.value, NkiError) and isinstance(caught.value, AttributeError)
    assert caught.value.code == "name.removed"
    assert instead in caught.value.fix and f"{module}.{name}" in caught.value.message


@together("module, name, instead", GONE)
def test_import_from_is_an_import_error_with_the_same_advice(module: str, name: str, instead: str) -> None:
    for statement in (f"from {module} import {name}", f"from {module} import {name} as other"):
        with pytest.raises(RemovedImportError) as caught:
            exec(statement)
        assert isinstance(caught.value, ImportError) and caught.value.code == "name.removed"
        assert instead in caught.value.fix and f"{module}.{name}" in caught.value.message


def test_the_line_of_the_import_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "old_kernels.py"
    file.write_text("import nki\nfrom nki.lang import add, arange\n")
    with pytest.raises(RemovedImportError) as caught:
        exec(compile(file.read_text(), str(file), "exec"))
    frame = caught.value.location.frames[0]
    assert (frame.file, frame.line) == (str(file), 2)
    assert caught.value.message == "nki.language.arange does not exist since NKI 0.2"


def test_a_default_for_a_missing_import_works() -> None:
    names: dict[str, object] = {}
    exec("try:\n    from nki import baremetal\nexcept ImportError:\n    baremetal = None\n", names)
    assert names["baremetal"] is None


@together("name", sorted(removed_table.ISA))
def test_advice_for_instructions_names_what_there_is(name: str) -> None:
    assert not hasattr(nisa, name)
    fix = removed_table.ISA[name].instead
    assert all(hasattr(nisa, each) for each in re.findall(r"nisa\.(\w+)", fix))
    assert all(hasattr(nl, each) for each in re.findall(r"\bnl\.(\w+)", fix))


def test_every_operator_is_told_on_the_instructions() -> None:
    """Functions of the activation unit, and operators of two operands of the ALUs."""
    operators = [each for module in (functions, alu) for each in vars(module).values() if isinstance(each, Operator)]
    wanted = {each.name for each in operators if each.activation or each.alu} - set(nisa.__all__)
    assert wanted == {name for name in removed_table.ISA if hasattr(nl, name) and name in {o.name for o in operators}}
    for operator in operators:
        if operator.activation and operator.name in wanted - {"copy"}:
            assert removed_table.ISA[operator.name].instead.startswith("write nisa.activation(")


@pytest.mark.parametrize("module", ["nki", "nki.language", "nki.isa", "nki.compiler"])
def test_unknown_name_is_a_plain_attribute_error(module: str) -> None:
    owner = importlib.import_module(module)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'") as caught:
        owner.nonsense  # noqa: B018
    assert not isinstance(caught.value, NkiError)


@pytest.mark.parametrize(
    ("module", "name", "close"),
    [
        ("nki", "profle", "profile"),
        ("nki.language", "softmx", "softmax"),
        ("nki.language", "bools_", "bool_"),
        ("nki.isa", "activate", "activate2 or activation"),
        ("nki.isa", "nc_matmull", "nc_matmul or nc_matmul_mx"),
    ],
)
def test_a_misspelt_name_is_told_the_close_ones(module: str, name: str, close: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(importlib.import_module(module), name)
    assert str(caught.value) == f"module {module!r} has no attribute {name!r}; did you mean {close}?"
    assert all(hasattr(importlib.import_module(module), each) for each in close.split(" or "))


def test_the_document_lists_the_same_names() -> None:
    text = (Path(__file__).parents[2] / "docs/api-versions.md").read_text().partition("## Names that are gone")[2]
    first_columns = " ".join(row.split("|")[1] for row in text.splitlines() if row.startswith("| `"))
    listed = set(re.findall(r"`([\w.]+)`", first_columns))
    short = {"nki": "nki", "nki.language": "nl", "nki.isa": "nisa", "nki.compiler": "nki.compiler"}
    assert listed == {f"{short[module]}.{name}" for module, name, _ in GONE}


def test_a_module_that_somebody_made_is_no_attribute_before_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for modules that there are not are put into `sys.modules` first, and have no spec."""
    monkeypatch.setitem(sys.modules, "nki.stand_in", ModuleType("nki.stand_in"))
    assert not hasattr(nki, "stand_in")


def test_a_module_that_was_not_imported_yet_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(nki, "simulator", raising=False)
    with pytest.raises(AttributeError, match=r"before `import nki\.simulator`"):
        getattr(nki, "simulator")  # noqa: B009 - mypy knows the module


@pytest.mark.parametrize(
    ("module", "name"),
    [("nki", "baremetal"), ("nki", "trace"), ("nki.language", "mgrid"), ("nki.isa", "fp32"), ("nki.compiler", "sbuf")],
)
def test_names_of_the_first_nki_tell_how_to_migrate(module: str, name: str) -> None:
    with pytest.raises(RemovedError) as caught:
        getattr(importlib.import_module(module), name)
    assert "nki migrate" in caught.value.fix and "open-nki-neuronxcc" in caught.value.fix


def test_keywords_of_the_first_nki_tell_how_to_migrate() -> None:
    for call in (
        lambda: nki.profile(working_directory="/tmp/x", save_neff_name="file.neff"),
        lambda: nki.benchmark(warmup=10, iters=100),
    ):
        with pytest.raises(NkiError) as caught:
            call()
        assert "nki migrate" in caught.value.fix


def test_modules_have_no_attribute_of_an_unknown_name() -> None:
    """`pickle` asks every module for the names that it looks for, and takes nothing but an AttributeError for a no."""
    importlib.import_module("nki.beta1.private_api")
    mine = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] in ("nki", "neuronxcc")]
    assert len(mine) > 50
    assert [module.__name__ for module in mine if hasattr(module, "what_no_module_has")] == []
