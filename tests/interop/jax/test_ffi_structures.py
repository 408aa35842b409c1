"""The structures are those of the C header that comes with XLA; offsets are worked out from its text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

from nki.interop.jax import ffi_structures as xla  # noqa: E402
from nki.interop.jax.ffi_handler import declared_version  # noqa: E402

HEADER = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()

NAMES = {
    "Extension": "Extension_Base",
    "Version": "Api_Version",
    "Metadata": "Metadata",
    "MetadataExtension": "Metadata_Extension",
    "Buffer": "Buffer",
    "Span": "ByteSpan",
    "Attributes": "Attrs",
    "ErrorCreate": "Error_Create_Args",
    "CallFrame": "CallFrame",
}

SIZES = {"size_t": 8, "int64_t": 8, "int": 4, "uint32_t": 4}


def declarations(name: str) -> list[str]:
    found = re.search(rf"struct XLA_FFI_{name} \{{(.*?)\n\}}", HEADER, re.S)
    assert found is not None, name
    return [line.strip() for line in re.sub(r"//.*", "", found[1]).split(";") if line.strip()]


def size_of(declaration: str) -> tuple[int, int]:
    """Size and alignment on a machine with 64 bits."""
    kind = declaration.replace("const ", "").replace("struct ", "").split()[0]
    if "*" in declaration:
        return 8, 8
    alias = re.search(rf"typedef (\w+) {kind};", HEADER)
    kind = alias[1] if alias and alias[1] in SIZES else kind
    if kind in SIZES:
        return SIZES[kind], SIZES[kind]
    if re.search(rf"\}} {kind};", HEADER) and f"struct {kind} " not in HEADER:
        return 4, 4  # an enumeration
    _, size, alignment = layout(kind.removeprefix("XLA_FFI_"))
    return size, alignment


def layout(name: str) -> tuple[list[int], int, int]:
    """Offsets of the fields, size, alignment."""
    offsets, end, widest = [], 0, 1
    for declaration in declarations(name):
        size, alignment = size_of(declaration)
        end = -(-end // alignment) * alignment
        offsets.append(end)
        end, widest = end + size, max(widest, alignment)
    return offsets, -(-end // widest) * widest, widest


@pytest.mark.parametrize("name", [*NAMES, "Args", "Rets"])
def test_fields_lie_where_the_header_has_them(name: str) -> None:
    ours = vars(xla).get(name, xla.Arguments)
    fields = [field for field, _ in ours._fields_]
    offsets = layout(NAMES.get(name, name))[0]
    assert [getattr(ours, field).offset for field in fields] == offsets[: len(fields)]
    assert len(fields) >= len(offsets) - (name == "CallFrame")


def test_errors_are_made_by_the_first_function_of_the_table() -> None:
    assert declarations("Api")[3].endswith("internal_api")
    functions = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", HEADER)
    assert functions[1] == "XLA_FFI_Error_Create"  # the first one is the macro's own definition
    assert xla.Api.error_create.offset == 8 + 8 + 24 + 8


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("bool", "PRED"), ("bfloat16", "BF16"), ("float8_e5m2", "F8E5M2"), ("float8_e4m3fn", "F8E4M3FN")]
    + [("float8_e4m3", "F8E4M3"), ("float8_e8m0fnu", "F8E8M0FNU")]
    + [(f"{kind}{bits}", f"{kind[0].upper()}{bits}") for kind in ("uint",) for bits in (8, 16, 32)]
    + [(f"int{bits}", f"S{bits}") for bits in (8, 16, 32)]
    + [(f"float{bits}", f"F{bits}") for bits in (16, 32)],
)
def test_numbers_of_dtypes(name: str, theirs: str) -> None:
    found = re.search(rf"XLA_FFI_DataType_{theirs} = (\d+),", HEADER)
    assert found is not None and xla.DTYPES[name] == int(found[1])
    assert len(xla.DTYPES) == 14


def test_numbers_of_kinds_and_codes() -> None:
    for theirs, ours in (
        ("Extension_Metadata", xla.EXTENSION_METADATA),
        ("ExecutionStage_EXECUTE", xla.STAGE_EXECUTE),
        ("AttrType_DICTIONARY", xla.ATTRIBUTE_DICTIONARY),
        ("AttrType_STRING", xla.ATTRIBUTE_STRING),
        ("Error_Code_FAILED_PRECONDITION", xla.ERROR_FAILED_PRECONDITION),
        ("Error_Code_INTERNAL", xla.ERROR_INTERNAL),
    ):
        assert re.search(rf"XLA_FFI_{theirs} = {ours}\b", HEADER)
    assert declared_version() in xla.VERSIONS
