"""How each attribute of an operation is read from MLIR and written to it: one table for all operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nki.core.source import UNKNOWN
from nki.graph.errors import GraphError
from nki.graph.stablehlo.types import dtype_of, mlir_dtype, to_device

Array = npt.NDArray[Any]


class Raw(str):
    """An attribute that nothing here understands, as MLIR text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Codec:
    """How a value is written; `fields` are those that it is spread over in an operation's attributes."""

    encode: Callable[[Any], str]
    decode: Callable[[Any], Any]
    fields: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------ decoding

_ENUM = re.compile(r"#(?:stablehlo|chlo)<(\w+) (\w+)>$")
_TOKEN = re.compile(r'"0x[0-9A-Fa-f]*"|0x[0-9A-Fa-f]+|true|false|[-+]?[0-9][0-9.eE+-]*')


def decode(attribute: Any) -> Any:
    """An attribute as a plain Python value; `Raw` if it has no such form."""
    name = type(attribute).__name__
    read = _BY_KIND.get(name)
    if read is not None:
        return read(attribute)
    if name.startswith("Dense") and name.endswith("ArrayAttr"):
        return tuple(attribute)
    text = str(attribute)
    found = _ENUM.match(text)
    return found[2] if found else Raw(text)


class PrintedElements:
    """The elements of a constant of complex numbers, as its operation is printed."""

    def __init__(self, operation: Any) -> None:
        text = str(operation)
        self.type = operation.results[0].type
        self.is_splat = "dense<(" in text
        self._text = text[text.index("dense<") :]

    def __str__(self) -> str:
        return self._text

    def __len__(self) -> int:
        return prod(self.type.shape)


def read_elements(attribute: Any) -> Array:
    """The elements of a dense attribute; of a splat one element with strides of 0. 64-bit floats become 32-bit ones."""
    if type(attribute).__name__ == "DenseResourceElementsAttr":
        raise GraphError(
            "graph.parse",
            "a constant keeps its elements in a resource of the file",
            rule="constants hold their elements, as dense attributes",
            fix="export the model with its weights as arguments, or as dense constants",
            location=UNKNOWN,
        )
    shape = tuple(attribute.type.shape)
    element = str(attribute.type.element_type)
    if element == "index":
        return np.asarray(attribute).astype(np.int64)
    stored = np.dtype(_WIDE.get(element, dtype_of(element).numpy))
    if attribute.is_splat and len(attribute):
        return np.broadcast_to(to_device(_from_text(str(attribute), stored)[0]), shape)
    if stored.isbuiltin == 1 and stored.kind != "c":
        return to_device(np.array(attribute, dtype=stored, copy=True).reshape(shape))
    return to_device(_from_text(str(attribute), stored).reshape(shape))


_WIDE = {"f64": np.float64, "complex<f64>": np.complex128}
"""Elements that have more bits in a file than on a device."""


def _from_text(text: str, stored: np.dtype[Any]) -> Array:
    """The bindings hand out no elements of types that C lacks, so they come from the printed form."""
    body = text[text.index("<") + 1 : text.rindex("> : ")]
    tokens = _TOKEN.findall(body)
    if len(tokens) == 1 and tokens[0].startswith('"'):
        return np.frombuffer(bytes.fromhex(tokens[0][3:-1]), stored)
    if stored.kind == "c":  # two numbers each
        return _from_text(text, np.dtype(f"f{stored.itemsize // 2}")).view(stored)
    unsigned = np.dtype(f"u{stored.itemsize}")
    result = np.empty(len(tokens), stored)
    for position, token in enumerate(tokens):
        if token.startswith("0x"):
            result[position] = np.array(int(token, 16), unsigned).view(stored)
        elif token in ("true", "false"):
            result[position] = token == "true"
        else:
            result[position] = int(token) if stored.kind in "iu" else float(token)
    return result


def _elements(attribute: Any) -> Any:
    """Small arrays of integers (padding, layouts) are tuples; `read_elements` reads constants."""
    values = read_elements(attribute)
    return tuple(map(tuple, values.tolist())) if values.ndim == 2 else tuple(np.atleast_1d(values).tolist())


_BY_KIND: Mapping[str, Callable[[Any], Any]] = {
    "BoolAttr": lambda a: bool(a.value),
    "IntegerAttr": lambda a: int(a.value),
    "FloatAttr": lambda a: float(a.value),
    "StringAttr": lambda a: a.value_bytes.decode("utf-8", "surrogateescape"),
    "FlatSymbolRefAttr": lambda a: a.value,
    "UnitAttr": lambda a: True,
    "DictAttr": lambda a: {a[i].name: decode(a[i].attr) for i in range(len(a))},
    "ArrayAttr": lambda a: tuple(decode(item) for item in a),
    "DenseElementsAttr": _elements,
    "DenseIntElementsAttr": _elements,
    "DenseFPElementsAttr": _elements,
}

# ------------------------------------------------------------------------------------------------------------ encoding


def quote(text: str) -> str:
    """A string literal of MLIR."""
    out = []
    for byte in text.encode("utf-8", "surrogateescape"):
        char = chr(byte)
        out.append(f"\\{byte:02X}" if byte < 32 or byte > 126 or char in '"\\' else char)
    return '"' + "".join(out) + '"'


def encode_elements(values: Array) -> str:
    """An array as a dense attribute; its dtype is the element type."""
    element = mlir_dtype(dtype_of_array(values))
    kind = f"tensor<{'x'.join((*map(str, values.shape), element))}>"
    if not values.size:
        return f"dense<> : {kind}"
    if values.size > 1 and not any(values.strides):
        return f"dense<{_scalar(values.reshape(-1)[0])}> : {kind}"
    if values.size == 1:
        return f"dense<{_scalar(values.reshape(-1)[0])}> : {kind}"
    if values.dtype == np.bool_:
        return f"dense<{_nested(values)}> : {kind}"
    return f'dense<"0x{np.ascontiguousarray(values).tobytes().hex().upper()}"> : {kind}'


def dtype_of_array(values: Array) -> Any:
    """The element type of a constant."""
    return dtype_of(values.dtype)


def _nested(values: Array) -> str:
    if values.ndim == 0:
        return _scalar(values[()])
    return "[" + ", ".join(map(_nested, values)) + "]"


def _scalar(value: Any) -> str:
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.integer):
        return str(int(value))
    if isinstance(value, np.complexfloating):
        return f"({_scalar(value.real)}, {_scalar(value.imag)})"
    stored = np.asarray(value)
    return f"0x{int(stored.view(f'u{stored.dtype.itemsize}')):0{2 * stored.dtype.itemsize}X}"


def _list(values: Any) -> str:
    return "[" + ", ".join(str(int(v)) for v in values) + "]"


def _array(element: str) -> Callable[[Any], str]:
    def encode(values: Any) -> str:
        body = ", ".join(str(v).lower() if isinstance(v, bool) else str(int(v)) for v in values)
        return f"array<{element}: {body}>" if body else f"array<{element}>"

    return encode


def _pairs(values: Any) -> str:
    body = ", ".join(_list(pair) for pair in values)
    return f"dense<[{body}]> : tensor<{len(values)}x2xi64>" if values else "dense<> : tensor<0x2xi64>"


def _ranks(values: Any) -> str:
    body = ", ".join(_list(row) for row in values)
    return f"dense<[{body}]> : tensor<{len(values)}x{len(values[0])}xi64>" if values else "dense<> : tensor<0x0xi64>"


def _plain(value: Any) -> str:
    """A value whose attribute's type is not fixed by a name: what dictionaries hold."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return f"0x{int(np.float64(value).view(np.uint64)):016X} : f64"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quote(k)} = {_plain(v)}" for k, v in value.items()) + "}"
    if isinstance(value, np.ndarray):
        return encode_elements(value)
    return "[" + ", ".join(map(_plain, value)) + "]"


def _enum(kind: str) -> Callable[[Any], str]:
    return lambda value: f"#stablehlo<{kind} {value}>"


def _enums(kind: str) -> Callable[[Any], str]:
    return lambda values: "[" + ", ".join(f"#stablehlo<{kind} {value}>" for value in values) + "]"


def _layouts(values: Any) -> str:
    return "[" + ", ".join(f"dense<{_list(v) if v else ''}> : tensor<{len(v)}xindex>" for v in values) + "]"


def _symbol(name: Any) -> str:
    return "@" + (name if re.fullmatch(r"[A-Za-z_][\w$.]*", name) else quote(name))


def _named_fields(kind: str, order: tuple[str, ...]) -> Codec:
    """Dimension numbers that print as ``field = value``; fields with the value () may be left out."""

    def encode(op: Mapping[str, Any]) -> str:
        parts = [
            f"{name} = {_list(op[name]) if isinstance(op[name], tuple) else op[name]}"
            for name in order
            if name in op and op[name] != ()
        ]
        return f"#stablehlo.{kind}<{', '.join(parts)}>"

    def read(attribute: Any) -> dict[str, Any]:
        text = str(attribute)
        found = dict(re.findall(r"(\w+) = (\[[^\]]*\]|\d+)", text))
        return {name: _number(found.get(name, "0" if name == "index_vector_dim" else "[]")) for name in order}

    return Codec(encode, read, order)


def _number(text: str) -> Any:
    numbers = tuple(int(item) for item in re.findall(r"-?\d+", text))
    return numbers if text.startswith("[") else numbers[0]


_CONV = {"input": ("batch", "feature"), "kernel": ("input_feature", "output_feature"), "output": ("batch", "feature")}
_CONV_LETTERS = {"input": "bf", "kernel": "io", "output": "bf"}
_CONV_FIELDS = tuple(
    name
    for side, (one, two) in _CONV.items()
    for name in (f"{side}_{one}_dimension", f"{side}_{two}_dimension", f"{side}_spatial_dimensions")
)


def _encode_conv(op: Mapping[str, Any]) -> str:
    sides = []
    for side, (one, two) in _CONV.items():
        spatial = op[f"{side}_spatial_dimensions"]
        letters = [""] * (len(spatial) + 2)
        for letter, name in zip(_CONV_LETTERS[side], (one, two), strict=True):
            letters[op[f"{side}_{name}_dimension"]] = letter
        for number, dim in enumerate(spatial):
            letters[dim] = str(number)
        sides.append("[" + ", ".join(letters) + "]")
    return f"#stablehlo.conv<{sides[0]}x{sides[1]}->{sides[2]}>"


def _decode_conv(attribute: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for (side, names), text in zip(_CONV.items(), re.findall(r"\[([^\]]*)\]", str(attribute)), strict=True):
        letters = [item.strip() for item in text.split(",")]
        for letter, name in zip(_CONV_LETTERS[side], names, strict=True):
            result[f"{side}_{name}_dimension"] = letters.index(letter)
        spatial = sorted((int(item), dim) for dim, item in enumerate(letters) if item.isdigit())
        result[f"{side}_spatial_dimensions"] = tuple(dim for _, dim in spatial)
    return result


def _simple(encode: Callable[[Any], str]) -> Codec:
    return Codec(encode, decode)


_I64S = _simple(_array("i64"))
_INT = _simple(lambda value: f"{value} : i64")
_I32 = _simple(lambda value: f"{value} : i32")
_F32 = _simple(lambda value: f"0x{int(np.float32(value).view(np.uint32)):08X} : f32")
_BOOL = _simple(lambda value: "true" if value else "false")
_PLAIN = _simple(_plain)

CODECS: Mapping[str, Codec] = {
    **dict.fromkeys(
        (
            "base_dilations", "broadcast_dimensions", "dimensions", "edge_padding_high", "edge_padding_low",
            "fft_length", "interior_padding", "lhs_dilation", "limit_indices", "permutation", "rhs_dilation",
            "slice_sizes", "start_indices", "strides", "window_dilations", "window_dimensions", "window_strides",
        ),
        _I64S,
    ),
    **dict.fromkeys(
        (
            "all_gather_dim", "batch_group_count", "concat_dimension", "dimension", "feature_group_count",
            "feature_index", "inverse", "iota_dimension", "k", "scatter_dimension", "split_count", "split_dimension",
        ),
        _INT,
    ),
    **dict.fromkeys(("api_version", "exponent_bits", "mantissa_bits", "version"), _I32),
    **dict.fromkeys(
        ("has_side_effect", "indices_are_sorted", "is_stable", "largest", "left_side", "lower", "unique_indices",
         "unit_diagonal", "use_global_device_ids"),
        _BOOL,
    ),
    "epsilon": _F32,
    "window_reversal": _simple(_array("i1")),
    "padding": _simple(_pairs),
    "source_target_pairs": _simple(_pairs),
    "replica_groups": _simple(_ranks),
    "operand_layouts": _simple(_layouts),
    "result_layouts": _simple(_layouts),
    "comparison_direction": _simple(_enum("comparison_direction")),
    "compare_type": _simple(_enum("comparison_type")),
    "precision_config": _simple(_enums("precision")),
    "rng_algorithm": _simple(_enum("rng_algorithm")),
    "rng_distribution": _simple(_enum("rng_distribution")),
    "transpose_a": _simple(_enum("transpose")),
    "fft_type": _simple(_enum("fft_type")),
    "callee": _simple(_symbol),
    "decomposition": _simple(_symbol),
    "called_computations": _simple(lambda names: "[" + ", ".join(map(_symbol, names)) + "]"),
    "value": Codec(encode_elements, read_elements),
    "dot_dimension_numbers": _named_fields(
        "dot",
        ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
         "rhs_contracting_dimensions"),
    ),
    "gather.dimension_numbers": _named_fields(
        "gather",
        ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims",
         "start_index_map", "index_vector_dim"),
    ),
    "scatter_dimension_numbers": _named_fields(
        "scatter",
        ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
         "scatter_dims_to_operand_dims", "index_vector_dim"),
    ),
    "convolution.dimension_numbers": Codec(_encode_conv, _decode_conv, _CONV_FIELDS),
}  # fmt: skip
"""By attribute; by operation and attribute where a name means two things. What is not here is written as it looks."""

_SPREAD = {key: codec for key, codec in CODECS.items() if codec.fields}


def decode_attributes(op: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """An operation's attributes as plain Python values, dimension numbers flat."""
    result: dict[str, Any] = {}
    for name, attribute in attributes.items():
        codec = CODECS.get(f"{op}.{name}") or CODECS.get(name, _PLAIN)
        value = codec.decode(attribute)
        if codec.fields:
            result.update(value)
        else:
            result[name] = value
    return result


def encode_attributes(op: str, attributes: Mapping[str, Any]) -> dict[str, str]:
    """The inverse of `decode_attributes`, as MLIR text by attribute."""
    result: dict[str, str] = {}
    spread: set[str] = set()
    for key, codec in _SPREAD.items():
        owner, _, name = key.rpartition(".")
        if (owner or _OWNERS[name]) == op:
            result[name] = codec.encode(attributes)
            spread.update(codec.fields)
    for name, value in attributes.items():
        if name not in spread:
            codec = CODECS.get(name, _PLAIN)
            result[name] = str(value) if isinstance(value, Raw) else codec.encode(value)
    return result


_OWNERS = {"dot_dimension_numbers": "dot_general", "scatter_dimension_numbers": "scatter"}
