"""The catalogue: every kernel is where it says, under both names, with a reference of the same signature."""

import inspect
from importlib import import_module

import pytest

from nkilib import kernels
from nkilib.catalogue import CATALOGUE, kernel, reference
from tests.together import together


@together("name", sorted(CATALOGUE))
def test_a_kernel_is_found_under_all_of_its_names(name: str) -> None:
    entry = CATALOGUE[name]
    found = kernel(name)
    assert getattr(import_module(entry.documented or entry.module), name) is found is getattr(kernels, name)
    assert entry.backward == "" or entry.backward in CATALOGUE


@together("name", sorted(CATALOGUE))
def test_its_reference_takes_the_same_arguments(name: str) -> None:
    names = list(inspect.signature(kernel(name).func).parameters)
    wanted = list(inspect.signature(reference(name)).parameters)  # where cores change a layout, it is told how many
    assert [each for each in names if each != "tiles"] == [each for each in wanted if each != "lnc"]


def test_a_name_that_is_missing_is_told_with_those_that_are_there() -> None:
    with pytest.raises(AttributeError, match="nkilib has no kernel 'attention_ctee'; it has"):
        _ = kernels.attention_ctee
    assert dir(kernels) == sorted(CATALOGUE)
