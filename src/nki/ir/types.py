"""Dialect `nki`: kernels, buffers, views, registers and loops, as IRDL, and what its types say."""

from __future__ import annotations

from nki.core.dtypes import BY_NAME, DType
from nki.core.errors import IRError
from nki.core.source import UNKNOWN
from nki.core.tensor import MemoryRegion
from nki.ir.irdl import (
    BUFFER,
    INTEGER,
    INTEGERS,
    ITEM,
    REGISTER,
    STRING,
    TENSOR,
    VIEW,
    ValueSlot,
    dialect,
    operation,
    strings,
    type_definition,
)
from nki.ir.mlir import (
    DynamicType,
    MlirLocation,
    RankedTensorType,
    StringAttr,
    Type,
    TypeAttr,
)

TERMINATORS = ("nki.yield", "nki.return")

_REGIONS = strings(region.value for region in MemoryRegion)
_SHAPED = (ValueSlot("shaped", TENSOR), ValueSlot("region", _REGIONS))
_BUFFER_ATTRIBUTES = {"id": INTEGER, "name": STRING, "role": STRING}


def nki_irdl() -> str:
    """The dialect as IRDL text.

    A view names elements of a buffer and is no value: an instruction computes its addresses when it runs, so that a
    view with a register in it follows the register. The members of a list of tensors are handed over as `!nki.item`,
    without their shapes, because IRDL wants them to have equal types. Attributes that may be absent: ``edges`` of a
    kernel, ``address`` and ``data`` of a buffer, ``dynamic`` and ``scale`` of a subview, ``lower`` and ``upper`` of a
    loop whose bound is no register.
    """
    return dialect(
        "nki",
        [
            type_definition("register"),
            type_definition("buffer", _SHAPED),
            type_definition("view", _SHAPED),
            type_definition("item"),
            operation(
                "kernel",
                attributes={"name": STRING, "target": STRING, "core": INTEGER, "cores": INTEGER},
                region=True,
            ),
            operation("input", results=[ValueSlot("buffer", BUFFER)], attributes=_BUFFER_ATTRIBUTES),
            operation("alloc", results=[ValueSlot("buffer", BUFFER)], attributes=_BUFFER_ATTRIBUTES),
            operation("reg", results=[ValueSlot("register", REGISTER)], attributes={"id": INTEGER, "frozen": INTEGER}),
            operation(
                "subview",
                operands=[ValueSlot("buffer", BUFFER), ValueSlot("index", VIEW + REGISTER, "optional ")],
                results=[ValueSlot("view", VIEW)],
                attributes={"offset": INTEGER, "strides": INTEGERS},
            ),
            operation(
                "for",
                operands=[
                    ValueSlot("index", REGISTER),
                    ValueSlot("lower", REGISTER, "optional "),
                    ValueSlot("upper", REGISTER, "optional "),
                ],
                attributes={"step": INTEGER},
                region=True,
            ),
            operation("list_item", operands=[ValueSlot("view", VIEW)], results=[ValueSlot("item", ITEM)]),
            operation("while", operands=[ValueSlot("condition", REGISTER)], region=True),
            operation("yield"),
            operation("return", operands=[ValueSlot("results", ITEM, "variadic ")]),
        ],
    )


def _spelling(dtype: DType) -> str:
    """MLIR's name of the element type: float8_e4m3fn is f8E4M3FN, and four packed lanes are a vector of 4."""
    if dtype.element is not None:
        return f"vector<{dtype.element.lanes}x{_float_spelling(dtype.element.name)}>"
    if dtype.kind == "bool":
        return "i1"
    if dtype.is_integer:
        return f"{'s' if dtype.signed else 'u'}i{dtype.bits}"
    return _float_spelling(dtype.name)


def _float_spelling(name: str) -> str:
    base, _, rest = name.replace("float", "f").partition("_")
    return base + rest.upper()


SPELLING = {dtype: _spelling(dtype) for dtype in BY_NAME.values()}
_BY_SPELLING = {text: dtype for dtype, text in SPELLING.items()}

Shaped = tuple[tuple[int, ...], DType, MemoryRegion]


class Types:
    """The types of the dialect in one context, each made once."""

    def __init__(self) -> None:
        self.register = DynamicType.get("nki.register", [])
        self.item = DynamicType.get("nki.item", [])
        self._elements: dict[DType, Type] = {}
        self._made: dict[tuple[str, tuple[int, ...], DType, MemoryRegion], Type] = {}
        self._unknown = MlirLocation.unknown()

    def shaped(self, kind: str, shape: tuple[int, ...], dtype: DType, region: MemoryRegion) -> Type:
        """``!nki.<kind><tensor<SHAPExDTYPE>, "REGION">``; `kind` is "buffer" or "view"."""
        key = (kind, shape, dtype, region)
        made = self._made.get(key)
        if made is None:
            element = self._elements.get(dtype)
            if element is None:
                element = self._elements[dtype] = Type.parse(SPELLING[dtype])
            tensor = TypeAttr.get(RankedTensorType.get(list(shape), element, loc=self._unknown))
            made = self._made[key] = DynamicType.get(f"nki.{kind}", [tensor, StringAttr.get(region.value)])
        return made


def shaped_of(kind: Type) -> Shaped:
    """Shape, dtype and region of a buffer or view type.

    Raises:
        IRError: "ir.type" for a dynamic shape, or an element type that no NKI dtype has.
    """
    tensor, region = DynamicType(kind).params
    ranked = TypeAttr(tensor).value
    if not isinstance(ranked, RankedTensorType) or not ranked.has_static_shape:
        raise _bad_type(kind, "a tensor has a static shape")
    return tuple(ranked.shape), dtype_of(ranked.element_type), MemoryRegion(StringAttr(region).value)


def dtype_of(element: Type) -> DType:
    """The dtype of an element type; raises IRError "ir.type" if there is none."""
    dtype = _BY_SPELLING.get(str(element))
    if dtype is None:
        raise _bad_type(element, f"an element type is one of {', '.join(_BY_SPELLING)}")
    return dtype


def _bad_type(kind: Type, rule: str) -> IRError:
    fix = "write for example tensor<128x512xf32>"
    return IRError("ir.type", f"type {kind}", rule=rule, fix=fix, location=UNKNOWN)
