"""Arguments of instructions that were renamed, moved or taken out, by the instruction and their name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import libcst as cst

import nki.isa as nisa
from nki.core.dtypes import as_dtype
from nki.spec.instruction import Instruction
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.operators import operator


@dataclass
class Call:
    """A call of an instruction, argument by argument.

    Attributes:
        name: of the instruction.
        old: the arguments as they stood, for what is known of them.
        texts: the arguments as they are written today, by name.
    """

    name: str
    old: dict[str, cst.BaseExpression]
    texts: dict[str, str] = field(default_factory=dict)


Change = Callable[[Context, Call, str], None]


def _dropped(c: Context, call: Call, key: str) -> None:
    del call.texts[key]


def _renamed(today: str) -> Change:
    def change(c: Context, call: Call, key: str) -> None:
        call.texts = {today if name == key else name: text for name, text in call.texts.items()}

    return change


def _only(value: str, problem: str) -> Change:
    """The keyword is left out if it has this value."""

    def change(c: Context, call: Call, key: str) -> None:
        if call.texts[key] != value:
            raise Unmigrated(problem)
        del call.texts[key]

    return change


def _gpsimd_dma(c: Context, call: Call, key: str) -> None:
    value = call.texts.pop(key)
    if value not in ("True", "False"):
        raise Unmigrated("use_gpsimd_dma is no constant")
    if value == "True":
        call.texts["dma_engine"] = c.nisa("dma_engine.gpsimd_dma")


def _combined(c: Context, call: Call, key: str) -> None:
    """``dma_copy(dst, src, dst_rmw_op=nl.add)`` is an instruction of its own."""
    value = call.texts.pop(key)
    if value == "None":
        return
    if not c.names.canonical(call.old[key]):
        raise Unmigrated("dst_rmw_op is no constant: write a branch, with nisa.dma_compute in one of them")
    dst, src = call.texts.pop("dst"), call.texts.pop("src")
    call.name = "dma_compute"
    call.texts = {"dst": dst, "srcs": f"[{dst}, {src}]", "reduce_op": operator(c, call.old[key]), **call.texts}


_CHANGES: dict[tuple[str, str], Change] = {
    ("nc_matmul", "psumAccumulateFlag"): _dropped,
    ("nc_matmul", "is_moving_zero"): _renamed("is_moving_onezero"),
    ("nc_transpose", "dtype"): _dropped,
    ("scalar_tensor_tensor", "dtype"): _dropped,
    ("tensor_copy", "dtype"): _dropped,
    ("register_move", "imm"): _renamed("src"),
    ("sendrecv", "use_gpsimd_dma"): _gpsimd_dma,
    ("dma_copy", "dst_rmw_op"): _combined,
    ("dma_copy", "unique_indices"): _only("True", "indices that repeat are not supported"),
    ("dma_copy", "mask"): _only("None", "masks no longer exist"),
}


def changed(c: Context, call: Call) -> None:
    """Put today's arguments in the place of old ones."""
    for key in list(call.texts):
        change = _CHANGES.get((call.name, key))
        if change is not None:
            change(c, call, key)
        elif key == "mask":
            _only("None", "masks no longer exist")(c, call, key)
        elif key in call.old and key in call.texts:
            call.texts[key] = _value(c, call, key)
    _same_bits(c, call)


def _reduces_last(c: Context, call: Call) -> bool:
    """Whether ``axis=1`` means the last axis, as it did in NKI 0.2: the destination says so."""
    dst, data = (c.facts.one(call.old[key]) if key in call.old else None for key in ("dst", "data"))
    if dst is None or data is None or len(data.shape) < 3:
        return False
    rest = [size for size in data.shape[:-1] if size != 1]
    middle = [size for size in (data.shape[0], *data.shape[2:]) if size != 1]
    return [size for size in dst.shape if size != 1] == rest != middle


def _same_bits(c: Context, call: Call) -> None:
    """Descriptors of the hardware move bits: since NKI 0.3 both sides of such a copy have one dtype."""
    dst, src = (c.facts.one(call.old[key]) if key in call.old else None for key in ("dst", "src"))
    if call.name != "dma_copy" or dst is None or src is None or "tensor" not in (dst.kind, src.kind):
        return
    if not call.texts.get("dge_mode", "").endswith("dge_mode.hwdge") or dst.dtype == src.dtype:
        return
    if as_dtype(dst.dtype).itemsize == as_dtype(src.dtype).itemsize:
        call.texts["src"] += f".view({c.nl(dst.dtype)})"


def _value(c: Context, call: Call, key: str) -> str:
    """An argument whose value is spelled in another way today."""
    node, text = call.old[key], call.texts[key]
    made = getattr(nisa, call.name, None)
    kind = made.operands[key] if isinstance(made, Instruction) and key in made.operands else None
    if kind is not None and kind.kind == "operator" and c.names.canonical(node).startswith(("nl.", "np.")):
        return operator(c, node)
    if kind is not None and kind.kind == "enum" and isinstance(node, cst.Integer):
        assert kind.choices is not None and issubclass(kind.choices, Enum), "an enumeration"
        return c.nisa(f"{kind.choices.__name__}.{kind.choices(int(node.value)).name}")
    if (call.name, key) == ("tensor_reduce", "axis") and text == "1" and _reduces_last(c, call):
        return str(len(c.facts.known(call.old["data"]).shape) - 1)
    if (call.name, key) == ("memset", "value") and isinstance(node, cst.Float):
        dst = c.facts.one(call.old["dst"]) if "dst" in call.old else None
        whole = float(node.value).is_integer()
        return str(int(float(node.value))) if dst is not None and "int" in dst.dtype and whole else text
    return text
