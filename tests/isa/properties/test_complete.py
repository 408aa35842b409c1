"""Nothing that is declared is forgotten: instructions, operators and operands; and the references of casts hold."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from nki.core.dtypes import DType
from nki.isa import alu as operators
from nki.spec.instruction import REGISTRY
from tests.isa.properties.cases import Case
from tests.isa.properties.drawing import BINARY, BITVEC, FUNCTIONS, OPERATORS, UNARY
from tests.isa.properties.families import ELSEWHERE, PROPERTIES, Property
from tests.isa.properties.formats import FORMATS, NUMERIC, decoded, stored
from tests.isa.properties.references_alu import alu, on_bits
from tests.isa.properties.references_functions import function
from tests.isa.properties.values import SPECIALS
from tests.together import together

_VALUES = SPECIALS.astype(np.float64)[None]


def test_every_declaration_is_tested_here_or_said_to_be_tested_elsewhere() -> None:
    assert set(REGISTRY) == set(PROPERTIES) | set(ELSEWHERE)
    assert not set(PROPERTIES) & set(ELSEWHERE)


def test_every_operator_is_drawn_and_has_a_reference() -> None:
    for op in (*BINARY, *UNARY):
        assert alu(op.name, _VALUES, _VALUES).shape[1:] == _VALUES.shape
    for op in (*BITVEC, operators.INVERT):
        assert 0 <= on_bits(op.name, 200, 3, 8) < 256
    for op in FUNCTIONS:
        assert function(op.name, _VALUES).candidates.shape[1:] == _VALUES.shape
    special = {operators.INVERT, operators.AVERAGE, operators.BYPASS}
    assert set(OPERATORS) == {*BINARY, *UNARY, *BITVEC, *FUNCTIONS} | special


@together("item", PROPERTIES.values())
def test_every_operand_is_drawn(item: Property) -> None:
    """Whatever a declaration takes appears in some case, but for the name."""
    drawn: set[str] = set()

    @settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(item.strategy)
    def collect(case: Case) -> None:
        drawn.update(name for call in case.calls for name in call)

    collect()
    assert set(REGISTRY[item.instruction].operands) - {"name"} == drawn


@pytest.mark.parametrize("dtype", [d for d in NUMERIC if d.bits == 8 or d.name in ("float16", "bfloat16")], ids=str)
def test_every_code_of_a_small_dtype_means_what_its_library_says(dtype: DType) -> None:
    codes = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}")
    if dtype.kind == "bool":
        codes = codes[:2]
    storage = codes.view(dtype.numpy)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(decoded(storage, dtype), storage.astype(np.float64))


@pytest.mark.parametrize("name", [*(n for n in FORMATS if "float32" not in n), "float8_e8m0fnu"])
def test_rounding_of_the_references_is_that_of_the_library(name: str) -> None:
    r = np.random.default_rng(1)
    bits = r.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([bits, SPECIALS, r.normal(0, 30, 50_000).astype(np.float32)])
    dtype = next(d for d in NUMERIC if d.name == name)
    if name == "float8_e8m0fnu":  # ml_dtypes rounds everything between the two smallest powers up
        values = values[~((values > 2.0**-127) & (values < 2.0**-126))]
    with np.errstate(all="ignore"):
        wanted = values.astype(getattr(ml_dtypes, name, np.float16)).astype(np.float64)
        got = stored(values.astype(np.float64), dtype)
    np.testing.assert_array_equal(got, wanted)


def test_between_the_smallest_scales_the_nearest_one_counts() -> None:
    dtype = next(d for d in NUMERIC if d.name == "float8_e8m0fnu")
    values = np.float64([1.0, 1.01, 1.49, 1.5, 1.99]) * 2.0**-127
    np.testing.assert_array_equal(stored(values, dtype), np.float64([1, 1, 1, 2, 2]) * 2.0**-127)
