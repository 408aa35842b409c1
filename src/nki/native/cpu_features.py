"""What the processor of this machine can do, as the operating system names it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_FIRST_BLOCKS = 1 << 16
_FLAGS = ("flags", "Features")  # x86, aarch64
_IDENTITY = ("vendor_id", "cpu family", "model", "model name", "CPU implementer", "CPU variant", "CPU part")


@cache  # the processor does not change
def features() -> frozenset[str]:
    """Names of instruction sets, as in /proc/cpuinfo; empty where the system does not list them."""
    fields = _first_processor()
    return frozenset(" ".join(fields.get(name, "") for name in _FLAGS).split())


def has(feature: str) -> bool:
    """Whether the processor has an instruction set.

    Args:
        feature: a name of /proc/cpuinfo, such as "avx512f" or "avx512_bf16".
    """
    return feature in features()


@cache  # the processor does not change
def dots_pay() -> bool:
    """Whether bfloat16 dot products are faster than float32 fused multiply-adds of the same numbers.

    Rates of one core, in GFLOP/s, dot products against multiply-adds (benchmarks/native_primitives.py, peaks): 225
    against 111 on Zen 4, 86 against 176 on Sapphire Rapids. Processors of other makers were not measured.
    """
    return has("avx512_bf16") and _first_processor().get("vendor_id") == "AuthenticAMD"


@cache  # the processor does not change
def digest() -> str:
    """SHA-256, in hexadecimal digits, of everything by which a compiler chooses instructions for this machine.

    The model counts as well as the instruction sets: the compiler schedules for it.
    """
    fields = _first_processor()
    parts = [platform.system(), platform.machine(), *(fields.get(name, "") for name in _IDENTITY), *sorted(features())]
    if not fields:
        parts.append(platform.processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache  # the processor does not change
def _first_processor() -> dict[str, str]:
    """The fields of the first processor; the others of a machine that one system runs on are of the same kind.

    Only the start of the file is read: the kernel writes it while it is read, which takes long for hundreds of
    processors.
    """
    try:
        with _CPUINFO.open("rb", buffering=0) as file:
            text = (file.read(_FIRST_BLOCKS) or b"").decode("utf-8", "replace")
    except OSError:
        return {}
    return parse(text)


def parse(cpuinfo: str) -> dict[str, str]:
    """Fields of the first block of /proc/cpuinfo, by name."""
    fields: dict[str, str] = {}
    for line in cpuinfo.partition("\n\n")[0].splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields[name.strip()] = value.strip()
    return fields
