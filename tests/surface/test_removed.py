"""Names of earlier versions say what to write instead; names that never were are plain AttributeErrors."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from nki.core.errors import NkiError, RemovedError

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
    ("nki.isa", "tensor_copy_dynamic_src", "scalar_offset"),
    ("nki.isa", "tensor_copy_dynamic_dst", "scalar_offset"),
]


@pytest.mark.parametrize(("module", "name", "instead"), GONE, ids=lambda v: v.replace(" ", "-"))
def test_removed_name_says_what_to_write(module: str, name: str, instead: str) -> None:
    owner = importlib.import_module(module)
    assert not hasattr(owner, name)
    with pytest.raises(RemovedError) as caught:
        getattr(owner, name)
    assert isinstance(caught.value, NkiError) and isinstance(caught.value, AttributeError)
    assert caught.value.code == "name.removed"
    assert instead in caught.value.fix and f"{module}.{name}" in caught.value.message


@pytest.mark.parametrize(("module", "name", "_"), GONE, ids=lambda v: v.replace(" ", "-"))
def test_import_from_is_an_import_error(module: str, name: str, _: str) -> None:
    with pytest.raises(ImportError, match=name):
        exec(f"from {module} import {name}")


@pytest.mark.parametrize("module", ["nki", "nki.language", "nki.isa"])
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
        ("nki.language", "bool", "bool_"),
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
    short = {"nki": "nki", "nki.language": "nl", "nki.isa": "nisa"}
    assert listed == {f"{short[module]}.{name}" for module, name, _ in GONE}
