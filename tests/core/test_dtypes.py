"""Names, sizes, ranges, spellings and packing of the data types."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.core import dtypes
from nki.core.dtypes import BY_NAME, DType, as_dtype, from_numpy, pack_x4, unpack_x4
from nki.core.errors import DtypeError
from tests.together import together

# name: storage bytes, kind, largest finite value, signed
EXPECTED = {
    "bool": (1, "bool", 1, False),
    "int8": (1, "int", 2**7 - 1, True),
    "int16": (2, "int", 2**15 - 1, True),
    "int32": (4, "int", 2**31 - 1, True),
    "int64": (8, "int", 2**63, True),
    "uint8": (1, "uint", 2**8 - 1, False),
    "uint16": (2, "uint", 2**16 - 1, False),
    "uint32": (4, "uint", 2**32 - 1, False),
    "uint64": (8, "uint", 2**64, False),
    "float16": (2, "float", 65504, True),
    "float32": (4, "float", 2**128 - 2**104, True),
    "bfloat16": (2, "float", 2**128 - 2**120, True),
    "tfloat32": (4, "float", 2**128 - 2**117, True),
    "float8_e4m3": (1, "float", 240, True),
    "float8_e4m3fn": (1, "float", 448, True),
    "float8_e5m2": (1, "float", 57344, True),
    "float8_e8m0fnu": (1, "scale", 2**127, False),
    "float8_e4m3fn_x4": (4, "packed", 448, True),
    "float8_e5m2_x4": (4, "packed", 57344, True),
    "float4_e2m1fn_x4": (2, "packed", 6, True),
}
PACKED = [dtype for dtype in BY_NAME.values() if dtype.is_packed]
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def test_the_list_is_complete() -> None:
    assert set(BY_NAME) == set(EXPECTED)
    for name, dtype in BY_NAME.items():
        assert getattr(dtypes, "bool_" if name == "bool" else name) is dtype


@together("name", EXPECTED)
def test_facts(name: str) -> None:
    size, kind, largest, signed = EXPECTED[name]
    dtype = BY_NAME[name]
    assert (dtype.itemsize, dtype.bits, dtype.numpy.itemsize) == (size, 8 * size, size)
    assert (dtype.name, dtype.kind, dtype.max, dtype.signed) == (name, kind, float(largest), signed)
    assert type(dtype.name) is str
    assert dtype.is_float == (kind == "float")
    assert dtype.is_integer == (kind in ("int", "uint"))
    assert dtype.is_packed == (kind == "packed") == (dtype.element is not None)
    assert dtype.device == (name not in ("int64", "uint64"))


def test_lower_ends() -> None:
    assert (dtypes.int8.min, dtypes.uint32.min, dtypes.float16.min) == (-128.0, 0.0, -65504.0)
    assert dtypes.float8_e8m0fnu.min == 2.0**-127
    assert (dtypes.float4_e2m1fn_x4.min, dtypes.tfloat32.min) == (-6.0, -float(2**128 - 2**117))


def test_lanes() -> None:
    elements = [dtype.element for dtype in PACKED]
    assert [(e.name, e.bits, e.lanes) for e in elements if e] == [
        ("float8_e4m3fn", 8, 4),
        ("float8_e5m2", 8, 4),
        ("float4_e2m1fn", 4, 4),
    ]
    assert [e.numpy for e in elements if e] == [
        np.dtype(ml_dtypes.float8_e4m3fn),
        np.dtype(ml_dtypes.float8_e5m2),
        np.dtype(ml_dtypes.float4_e2m1fn),
    ]


@together("dtype", BY_NAME.values())
def test_is_a_string(dtype: DType) -> None:
    assert isinstance(dtype, str)
    assert f"{dtype}" == str(dtype) == dtype.name
    assert hash(dtype) == hash(dtype.name)
    by_name: dict[str, int] = {dtype: 1}
    assert by_name[dtype.name] == 1 and {dtype.name: 1}[dtype] == 1
    assert dtype == dtype.name and dtype.name == dtype and not dtype != dtype.name  # noqa: SIM202


@together("dtype", BY_NAME.values())
def test_one_object_per_name(dtype: DType) -> None:
    assert DType(dtype.name) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_immutable() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        dtypes.int8.itemsize = 2
    with pytest.raises(AttributeError, match="cannot be changed"):
        del dtypes.int8.itemsize
    assert dtypes.int8.itemsize == 1


@together("dtype", BY_NAME.values())
def test_numpy_accepts_it(dtype: DType) -> None:
    stored = np.dtype(dtype)
    assert stored == dtype.numpy and stored != np.dtype(object)
    assert stored == dtype
    if dtype is not dtypes.tfloat32:
        assert dtype == stored and dtype == stored.type
        assert as_dtype(stored) is as_dtype(stored.type) is from_numpy(stored) is dtype
    assert np.zeros((2, 3), dtype).nbytes == 6 * dtype.itemsize


def test_tfloat32_is_not_float32() -> None:
    assert dtypes.tfloat32 != dtypes.float32
    assert dtypes.tfloat32 != np.float32
    assert np.float32 != dtypes.tfloat32
    assert from_numpy(np.dtype(np.float32)) is dtypes.float32


def test_numpy_tells_packed_types_apart() -> None:
    stored = [np.dtype(dtype) for dtype in PACKED]
    assert len(set(stored)) == 3
    assert all((a == b) == (a is b) for a in stored for b in stored)
    assert all(dtype.numpy.type is not np.void and issubclass(dtype.numpy.type, np.void) for dtype in PACKED)
    assert np.dtype([("low", "u2"), ("high", "u2")]) not in stored


def test_equality_from_both_sides() -> None:
    assert dtypes.float32 == np.float32 and np.float32 == dtypes.float32
    assert np.dtype("float32") == dtypes.float32
    assert dtypes.bfloat16 == ml_dtypes.bfloat16 and ml_dtypes.bfloat16 == dtypes.bfloat16
    assert dtypes.float32 != np.float64 and dtypes.int32 != np.int64 and dtypes.int8 != "uint8"
    assert dtypes.bool_ == bool  # noqa: E721
    assert dtypes.bool_ == "bool_" and dtypes.bool_ == np.bool_
    assert dtypes.int64 == np.longlong
    assert dtypes.float8_e4m3 == "float8e4" and dtypes.float8_e5m2 == "float8e5"


def test_torch_spellings() -> None:
    torch = pytest.importorskip("torch")
    names = ["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"]
    for name in [*names, "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]:
        assert BY_NAME[name] == getattr(torch, name)
        assert getattr(torch, name) == BY_NAME[name]
        assert as_dtype(getattr(torch, name)) is BY_NAME[name]
    assert dtypes.tfloat32 != torch.float32
    with pytest.raises(DtypeError) as error:
        as_dtype(torch.float64)
    assert error.value.code == "dtype.unsupported"


class _ScalarMeta(type):
    """Like the metaclass of jax.numpy's scalar types, which hash as what they compare equal to."""

    dtype: np.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or bool(cls.dtype.type == other)


def test_jax_spellings() -> None:
    scalar = _ScalarMeta("bfloat16", (object,), {"dtype": np.dtype(ml_dtypes.bfloat16)})
    assert dtypes.bfloat16 == scalar and dtypes.float32 != scalar
    assert as_dtype(scalar) is dtypes.bfloat16


class _Unhashable(type):
    __hash__ = None  # type: ignore[assignment]


@together(
    "other",
    [
        None,
        3,
        1.5,
        object(),
        [],
        {},
        "",
        "float",
        int,
        float,
        str,
        np.floating,
        np.float64,
        np.dtype(object),
        np.dtype(">f4"),
        np.zeros(3, np.float32),
        _Unhashable("t", (), {}),
        np.dtype([("a", "u2")]),
        b"float32",
    ],
)
def test_comparison_never_raises(other: object) -> None:
    for dtype in BY_NAME.values():
        assert (dtype == other) is False
        assert (dtype != other) is True
    with pytest.raises(DtypeError):
        as_dtype(other)


@given(st.text("abfilnotux_0123456789.", max_size=12) | st.sampled_from(sorted(BY_NAME)).map(str.upper))
def test_other_strings_are_different(text: str) -> None:
    known = {*BY_NAME, "bool_", "float8e4", "float8e5"}
    assert (text in known) == any(dtype == text for dtype in BY_NAME.values())


@pytest.mark.parametrize(("wrong", "right"), [("bf16", "bfloat16"), ("flaot32", "float32"), ("float8_e4m3fnx4", "x4")])
def test_unknown_suggests_the_closest(wrong: str, right: str) -> None:
    with pytest.raises(DtypeError) as error:
        as_dtype(wrong)
    assert error.value.code == "dtype.unknown"
    assert wrong in error.value.message and right in error.value.fix


@pytest.mark.parametrize("wide", ["float64", np.float64, np.dtype("float64"), float, "torch.float64", np.complex64])
def test_wide_floats_are_unsupported(wide: object) -> None:
    with pytest.raises(DtypeError) as error:
        as_dtype(wide)
    assert error.value.code == "dtype.unsupported" and "nl.float32" in error.value.fix


def test_foreign_byte_order_is_unsupported() -> None:
    with pytest.raises(DtypeError) as error:
        as_dtype(np.dtype("int32").newbyteorder())
    assert error.value.code == "dtype.unsupported" and "newbyteorder" in error.value.fix


# ---- packing


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_lane_zero_lies_in_the_low_bits(dtype: DType) -> None:
    one = {"float8_e4m3fn_x4": 0x38, "float8_e5m2_x4": 0x3C, "float4_e2m1fn_x4": 0x2}[dtype]
    for lane in range(4):
        packed = pack_x4(np.eye(4, dtype=np.float32)[lane], dtype)
        assert packed.shape == (1,) and packed.dtype == dtype.numpy
        assert int(packed.view(f"u{dtype.itemsize}")[0]) == one << (lane * dtype.bits // 4)


@pytest.mark.parametrize("dtype", [dtypes.float8_e4m3fn_x4, dtypes.float8_e5m2_x4], ids=str)
def test_all_fp8_codes_round_trip(dtype: DType) -> None:
    assert dtype.element is not None
    codes = np.arange(256, dtype=np.uint8)
    values = unpack_x4(codes.view(dtype.numpy), dtype)
    np.testing.assert_array_equal(values, codes.view(dtype.element.numpy).astype(np.float32))
    again = pack_x4(values, dtype).view(np.uint8)
    finite = np.isfinite(values)
    np.testing.assert_array_equal(again[finite], codes[finite])
    np.testing.assert_array_equal(np.isnan(unpack_x4(again.view(dtype.numpy), dtype)), np.isnan(values))


def test_all_fp4_words_round_trip() -> None:
    words = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    values = unpack_x4(words, dtypes.float4_e2m1fn_x4)
    assert values.shape == (256, 1024)
    nibbles = np.stack([words // 16**lane % 16 for lane in range(4)], axis=-1).reshape(256, 1024)
    table = np.array([*E2M1, *np.negative(E2M1)], np.float32)
    np.testing.assert_array_equal(values.view(np.uint32), table[nibbles].view(np.uint32))
    np.testing.assert_array_equal(pack_x4(values, dtypes.float4_e2m1fn_x4).view(np.uint16), words)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=4, max_size=4))
def test_fp4_rounds_to_the_nearest_and_saturates(values: list[float]) -> None:
    packed = pack_x4(np.array(values, np.float32), dtypes.float4_e2m1fn_x4)
    for value, got in zip(values, unpack_x4(packed, dtypes.float4_e2m1fn_x4), strict=True):
        magnitude = Fraction(min(abs(value), 6.0))
        code = min(range(8), key=lambda c: (abs(Fraction(E2M1[c]) - magnitude), c % 2))
        assert abs(got) == E2M1[code]
        assert np.signbit(got) == np.signbit(value)


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_packing_saturates_without_a_warning(dtype: DType) -> None:
    with np.errstate(all="raise"):
        packed = pack_x4(np.array([1e30, -np.inf, np.inf, -1e30], np.float32), dtype)
    assert unpack_x4(packed, dtype).tolist() == [dtype.max, dtype.min, dtype.max, dtype.min]


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_nan_lanes(dtype: DType) -> None:
    values = unpack_x4(pack_x4(np.array([np.nan, 1, -np.nan, 2], np.float32), dtype), dtype)
    assert values[[1, 3]].tolist() == [1, 2]
    if dtype is dtypes.float4_e2m1fn_x4:
        assert (values[[0, 2]] == 0).all()
    else:
        assert np.isnan(values[[0, 2]]).all()


def test_packing_of_strided_values() -> None:
    values = np.arange(64, dtype=np.float32).reshape(8, 8).T / 16
    for dtype in PACKED:
        plain = unpack_x4(pack_x4(np.ascontiguousarray(values), dtype), dtype)
        np.testing.assert_array_equal(unpack_x4(pack_x4(values, dtype), dtype), plain)
        np.testing.assert_array_equal(unpack_x4(pack_x4(values, dtype)[::2], dtype), plain[::2])


def test_packing_errors() -> None:
    with pytest.raises(DtypeError) as error:
        pack_x4(np.zeros((2, 6), np.float32), dtypes.float8_e5m2_x4)
    assert error.value.code == "dtype.lanes" and "[2, 6]" in error.value.message
    for call in (pack_x4, unpack_x4):
        with pytest.raises(DtypeError) as error:
            call(np.zeros(4, np.float32), dtypes.float8_e5m2)
        assert error.value.code == "dtype.not-packed"
