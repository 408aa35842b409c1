"""Compiling MLIR: what the functions compute, with which instructions, and what is refused."""

from __future__ import annotations

import ctypes
import re
from fractions import Fraction

import numpy as np
import pytest

from nki.native import cpu_features
from nki.native.objects import elf, executable_memory, jit
from tests.native.objects.jit_cases import COPY, COUNTER, answer, call, check_scale_add, scale_add

# vaddps is opcode 58 behind prefix EVEX, with length bits 10 in the last byte for zmm, or VEX (Intel SDM 2A, 2.3, 2.7).
WIDE_ADD = re.compile(rb"\x62[\xf1\xd1\x71\x51\xb1\x31\x91\x11].[\x40-\x5f]\x58", re.DOTALL)
NARROW_ADD = re.compile(rb"\xc5.\x58|\xc4..\x58", re.DOTALL)

needs_loader = pytest.mark.skipif(bool(executable_memory.refusal()), reason=executable_memory.refusal())


@needs_loader
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 512, 1000])
def test_a_loaded_object_computes_what_numpy_computes(count: int) -> None:
    check_scale_add(executable_memory.load(jit.compile_object(scale_add("f")))["f"], count=count)


def test_in_process_computes_the_same() -> None:
    kept = jit.in_process(scale_add("f") + answer("g", 5))
    check_scale_add(kept["f"])
    assert call(kept["g"]) == 5


@needs_loader
def test_functions_of_a_module_call_each_other_and_share_variables() -> None:
    text = COUNTER + "func.func @twice() -> i64 {\n %a = call @counted() : () -> i64\n return %a : i64\n}"
    found = executable_memory.load(jit.compile_object(text))
    assert [call(found[name]) for name in ("counted", "twice", "counted")] == [1, 2, 3]


@needs_loader
def test_memory_is_copied_by_the_c_library() -> None:
    address = executable_memory.load(jit.compile_object(COPY))["copied"]
    source, target = np.arange(1000), np.zeros(1000, np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)(
        target.ctypes.data, source.ctypes.data, 8 * 999
    )
    assert (target[:999] == source[:999]).all() and target[999] == 0


@needs_loader
def test_memory_is_never_writable_and_executable() -> None:
    """Code, constants and variables of an object with all three."""
    table = "llvm.mlir.global constant @table(dense<[3, 5, 7, 11]> : tensor<4xi64>) : !llvm.array<4 x i64>\n"
    text = f"""{table}{COUNTER}func.func @where() -> i64 {{
  %p = llvm.mlir.addressof @count : !llvm.ptr
  %i = llvm.ptrtoint %p : !llvm.ptr to i64
  return %i : i64
}}
func.func @entry(%i: i64) -> i64 {{
  %t = llvm.mlir.addressof @table : !llvm.ptr
  %p = llvm.getelementptr %t[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %v = llvm.load %p : !llvm.ptr -> i64
  return %v : i64
}}"""
    data = jit.compile_object(text)
    found, image = executable_memory.load(data), elf.read(data)
    assert image.code and image.constants and image.variables
    base = found["where"] - image.functions["where"]
    assert call(found["where"]) >= base + image.code + image.constants
    assert permissions(base) == "r-xp"
    assert permissions(base + image.code) == "r--p"
    assert permissions(call(found["where"])) == "rw-p"
    entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(found["entry"])
    assert [entry(i) for i in range(4)] == [3, 5, 7, 11]


def permissions(address: int) -> str:
    """Of the mapping that holds an address."""
    with open("/proc/self/maps", encoding="ascii") as file:
        for line in file:
            bounds, rights = line.split()[:2]
            start, end = (int(each, 16) for each in bounds.split("-"))
            if start <= address < end:
                return rights
    return ""


def ternary(name: str, lines: str) -> str:
    return f"func.func @{name}(%x: f32, %y: f32, %z: f32) -> f32 {{\n{lines}\n  return %r : f32\n}}\n"


def test_products_and_sums_are_fused_only_where_the_text_says() -> None:
    text = ternary("two", "  %p = arith.mulf %x, %y : f32\n  %r = arith.addf %p, %z : f32")
    text += ternary("one", "  %r = math.fma %x, %y, %z : f32")
    kept = jit.in_process(text)
    kind = ctypes.CFUNCTYPE(ctypes.c_float, *[ctypes.c_float] * 3)
    x = np.float32(1 + 2**-12)
    exact = Fraction(float(x)) ** 2 - 1
    fused, rounded = np.float32(float(exact)), x * x - np.float32(1)
    assert fused != rounded, "the numbers tell the two apart"
    assert kind(kept["one"])(x, x, -1) == fused
    assert kind(kept["two"])(x, x, -1) == rounded


@pytest.mark.skipif(not cpu_features.has("avx512f"), reason="the processor has no registers of 512 bits")
def test_vectors_use_the_widest_registers() -> None:
    """EVEX prefix 62, length bits of its last byte 10 for zmm, opcode 58 of vaddps (Intel SDM, volume 2A, 2.7)."""
    assert re.search(
        rb"\x62[\xf1\xd1\x71\x51\xb1\x31\x91\x11].[\x40-\x5f]\x58", jit.compile_object(scale_add("f")), re.S
    )


@pytest.mark.skipif(not cpu_features.has("avx2"), reason="for processors of this kind")
def test_vectors_are_split_where_registers_are_narrower() -> None:
    """As for a processor without AVX-512."""
    narrow = ' attributes {llvm.target_features = #llvm.target_features<["-avx512f"]>} {'
    text = scale_add("f").replace(" {", narrow, 1)
    data = jit.compile_object(text)
    check_scale_add(jit.in_process(text)["f"])
    assert not WIDE_ADD.search(data) and NARROW_ADD.search(data)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "defines no function"),
        ("func.func @f(", "parse"),
        ('func.func @f() { "no.such"() : () -> () return }', "parse"),
        (ternary("f", "  %r = math.exp %x : f32"), "math.exp: results would depend on the machine"),
        (ternary("f", "  %r = llvm.intr.fmuladd(%x, %y, %z) : (f32, f32, f32) -> f32"), "fmuladd"),
        (ternary("f", "  %r = arith.remf %x, %y : f32"), "remf"),
        (ternary("f", "  %r = vector.fma %x, %y, %z : f32"), "vector.fma"),
        (ternary("f", "  %r = arith.addf %x, %y fastmath<contract> : f32"), "fastmath"),
        ("func.func private @expf(f32) -> f32\n" + ternary("f", "  %r = call @expf(%x) : (f32) -> f32"), "calls expf"),
    ],
)
@pytest.mark.parametrize("compile_", [jit.compile_object, jit.in_process])
def test_what_is_refused(compile_: object, text: str, says: str) -> None:
    assert callable(compile_)
    with pytest.raises(jit.CompileError, match=says) as caught:
        compile_(text)
    assert caught.value.text == text


def test_a_refused_text_leaves_the_compiler_usable() -> None:
    with pytest.raises(jit.CompileError):
        jit.compile_object("func.func @f(")
    check_scale_add(jit.in_process(scale_add("f"))["f"])


def test_equal_texts_give_equal_objects() -> None:
    """Keys of objects do not depend on it, but it makes differences between machines explainable."""
    assert jit.compile_object(scale_add("f")) == jit.compile_object(scale_add("f"))


def test_features_of_a_listing() -> None:
    fields = cpu_features.parse("processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu sse\n")
    assert fields == {"processor": "0", "flags": "fpu avx2"}
    assert len(cpu_features.digest()) == 64
    assert not cpu_features.has("") and not cpu_features.has("no-such")
