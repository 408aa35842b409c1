"""Every switch and environment variable, in one frozen record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from nki.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Options:
    """What the environment asks for; read again at every call.

    Attributes:
        target: name from NEURON_PLATFORM_TARGET_OVERRIDE, or "" for the default.
        simulator: NKI_SIMULATOR=1 runs every kernel call eagerly.
        precise_fp: NKI_PRECISE_FP=0 keeps low-precision tensors as float32; NumPy executes everything then.
        matmul: NKI_MATMUL, "ordered" (float32, fused multiply-adds in ascending k, equal bits on every machine), "fast"
            (dot instructions whatever the operands, within ulps) or "blas" (NumPy's, within ulps).
        disabled_rules: codes from NKI_DISABLE_RULES, separated by commas.
        api: NKI_API_VERSION, the version whose meaning is used where versions differ.
        stochastic_rounding: NEURON_RT_STOCHASTIC_ROUNDING_EN=1.
        seed: NEURON_RT_STOCHASTIC_ROUNDING_SEED, also the initial state of the engines' random generators.
        prefetch_ring: NKI_PREFETCH_RING_SIZE, buffers that loads of a device loop go round if its kernel prefetches.
        dump_ir: NKI_DUMP_IR, a directory for the IR after every pass; "" for none.
        print_after: NKI_PRINT_AFTER, a pass after which the IR is printed to stderr, or "all"; "" for none.
        native: NKI_NATIVE, "auto" compiles instructions where that pays, "always" at their first use, "0" has NumPy
            execute everything; results are the same.
        uninitialized: NKI_UNINITIALIZED, what unwritten storage shows: "sentinel" (NaN, in integers 4) or "zero".
            Reading it is reported either way.
        imitate: NKI_IMITATE, "vendor" compiles as published profiles show that the device's compiler does, so that
            predicted times are those of the device; "none" makes the shortest program that is found. Results are equal.
        threads: NKI_THREADS, how many threads execute native code; 0 for as many as there are processors.
        require_native: NKI_REQUIRE_NATIVE=1 makes it an error if native code cannot be made or executed.
    """

    target: str = ""
    simulator: bool = False
    precise_fp: bool = True
    matmul: str = "ordered"
    disabled_rules: frozenset[str] = frozenset()
    api: str = "0.6"
    stochastic_rounding: bool = False
    seed: int = 0
    prefetch_ring: int = 4
    dump_ir: str = ""
    print_after: str = ""
    native: str = "auto"
    require_native: bool = False
    threads: int = 0
    uninitialized: str = "sentinel"
    imitate: str = "vendor"


# variable, field, meaning; the documentation prints this table
ENVIRONMENT: tuple[tuple[str, str, str], ...] = (
    ("NEURON_PLATFORM_TARGET_OVERRIDE", "target", "target that kernels are checked and run for"),
    ("NKI_SIMULATOR", "simulator", "1: kernel calls run eagerly, so that a debugger works in them"),
    ("NKI_PRECISE_FP", "precise_fp", "0: low-precision tensors keep float32 values, and NumPy executes everything"),
    ("NKI_MATMUL", "matmul", "ordered (default: equal bits everywhere), fast or blas: how matrix products are summed"),
    ("NKI_DISABLE_RULES", "disabled_rules", "codes of rules that are not checked, separated by commas"),
    ("NKI_API_VERSION", "api", "NKI version whose meaning counts where versions differ"),
    ("NEURON_RT_STOCHASTIC_ROUNDING_EN", "stochastic_rounding", "1: float downcasts round stochastically"),
    ("NEURON_RT_STOCHASTIC_ROUNDING_SEED", "seed", "seed of stochastic rounding and of the random generators"),
    ("NKI_PREFETCH_RING_SIZE", "prefetch_ring", "trips of a device loop that overlap if its kernel prefetches"),
    ("NKI_DUMP_IR", "dump_ir", "directory for the IR after every pass of the compiler"),
    ("NKI_PRINT_AFTER", "print_after", "pass after which the IR is printed to stderr, or all"),
    ("NKI_NATIVE", "native", "auto (default), always or 0: which instructions are compiled; NumPy gives the same bits"),
    ("NKI_THREADS", "threads", "threads that execute native code; 0 (default): one for each processor"),
    ("NKI_UNINITIALIZED", "uninitialized", "sentinel (default: NaN, integers 4) or zero: what unwritten storage shows"),
    ("NKI_IMITATE", "imitate", "vendor (default): compile as the device's compiler does; none: for the least time"),
    ("NKI_REQUIRE_NATIVE", "require_native", "1: an error where native code cannot be made or executed"),
)

MATMUL = ("ordered", "fast", "blas")
IMITATE = ("vendor", "none")
API_VERSIONS = ("0.3", "0.4", "0.5", "0.6", "0.7")


def stated(environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """The fields of `Options` that the environment says something about."""
    env = os.environ if environment is None else environment
    return frozenset(field for name, field, _ in ENVIRONMENT if env.get(name, "").strip())


_OS_ENVIRON = os.environ
_ENCODED: Mapping[Any, Any] | None = vars(os.environ).get("_data")
"""What `os.environ` decodes; None where it is made differently. A variable that is not set costs it two exceptions, and
every call of a kernel asks for all variables."""

_NAMES = tuple(name for name, *_ in ENVIRONMENT)
_KEYS = tuple(os.environ.encodekey(name) for name in _NAMES)


def from_environment(environment: Mapping[str, str] | None = None) -> Options:
    """Read the variables of `ENVIRONMENT`; a value that makes no sense is a UsageError."""
    if environment is None and _ENCODED is not None and os.environ is _OS_ENVIRON:
        return _decoded(tuple(map(_ENCODED.get, _KEYS)))
    env = os.environ if environment is None else environment
    return _options(tuple(env.get(name) for name in _NAMES))


@lru_cache(maxsize=16)  # every call asks, and most environments are the last one
def _decoded(values: tuple[Any, ...]) -> Options:
    return _options(tuple(None if value is None else _OS_ENVIRON.decodevalue(value) for value in values))


@lru_cache(maxsize=16)  # equal environments give one object, by whose identity launches find what they settled
def _options(values: tuple[str | None, ...]) -> Options:
    """Options read from the values of the environment, in the order of `_NAMES`; equal values give one object."""
    env = {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}
    return Options(
        target=env.get("NEURON_PLATFORM_TARGET_OVERRIDE", ""),
        simulator=_flag(env, "NKI_SIMULATOR", False),
        precise_fp=_flag(env, "NKI_PRECISE_FP", True),
        matmul=_one_of(env, "NKI_MATMUL", "ordered", MATMUL),
        disabled_rules=frozenset(code.strip() for code in env.get("NKI_DISABLE_RULES", "").split(",") if code.strip()),
        api=_one_of(env, "NKI_API_VERSION", "0.6", API_VERSIONS),
        stochastic_rounding=_flag(env, "NEURON_RT_STOCHASTIC_ROUNDING_EN", False),
        seed=_number(env, "NEURON_RT_STOCHASTIC_ROUNDING_SEED", 0),
        prefetch_ring=_number(env, "NKI_PREFETCH_RING_SIZE", 4),
        dump_ir=env.get("NKI_DUMP_IR", ""),
        print_after=env.get("NKI_PRINT_AFTER", ""),
        native=_one_of(env, "NKI_NATIVE", "auto", ("auto", "always", "0")),
        threads=_number(env, "NKI_THREADS", 0),
        require_native=_flag(env, "NKI_REQUIRE_NATIVE", False),
        uninitialized=_one_of(env, "NKI_UNINITIALIZED", "sentinel", ("sentinel", "zero")),
        imitate=_one_of(env, "NKI_IMITATE", "vendor", IMITATE),
    )


def _flag(env: Mapping[str, str], name: str, default: bool) -> bool:
    text = env.get(name, "").strip().lower()
    if text in ("", "0", "1", "true", "false"):
        return default if not text else text in ("1", "true")
    raise UsageError("option.value", f"{name}={env[name]!r}", rule=f"{name} is 0 or 1", fix=f"set {name}=1 or unset it")


def _one_of(env: Mapping[str, str], name: str, default: str, values: tuple[str, ...]) -> str:
    text = env.get(name, "").strip() or default
    if text not in values:
        raise UsageError(
            "option.value",
            f"{name}={text!r}",
            rule=f"{name} is one of {', '.join(values)}",
            fix=f"set {name}={default} or unset it",
        )
    return text


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "").strip()
    try:
        return int(text) if text else default
    except ValueError:
        raise UsageError(
            "option.value", f"{name}={text!r}", rule=f"{name} is an integer", fix=f"set {name}=0"
        ) from None
