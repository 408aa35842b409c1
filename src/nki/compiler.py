"""``nki.compiler``: the per-kernel settings that ``nki.jit`` takes, and what they change here."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

from nki.core.errors import LaunchError
from nki.core.names.removed import missing_name
from nki.core.names.removed_table import COMPILER

__all__ = ["AddressRotation", "CompileConfig", "SpecializationConfig"]


class AddressRotation(Enum):
    """Whether the compiler may move a tensor to another address for a better layout.

    AUTO: tensors without a fixed address; ENABLE: all; DISABLE: none.
    """

    AUTO = "auto"
    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class CompileConfig:
    """Settings of the compiler for one kernel: ``@nki.jit(compile_config=CompileConfig(...))``.

    The names are those of NKI 0.7, but `spill`, which is an addition. A setting that changes nothing here warns when
    the kernel is made, and the report says so (`statements`).

    Attributes:
        address_rotation: whether the allocator spreads tensors over the memory, so that instructions need not wait for
            bytes that were in use a moment ago; DISABLE packs them tightly. Explicit addresses stay as they are.
        non_ssa_legalization: whether the compiler legalizes tensors that are written more than once.
        dead_code_elim: whether the compiler may drop instructions whose results nobody reads.
        barrier_check: whether the barriers of the cores are checked; here they always are.
        prefetch_auto: whether loops on the device are unrolled, so that loads of the next trips run ahead; by
            NKI_PREFETCH_RING_SIZE.
        nki_alloc_fallback: whether another allocator is tried if the first one fails.
        spill: whether tensors that do not fit may wait in HBM; each that does is reported.
    """

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool = False
    dead_code_elim: bool = False
    barrier_check: bool = False
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True
    spill: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.address_rotation, AddressRotation):
            raise _value(self, "address_rotation", "a member of nki.compiler.AddressRotation", "AddressRotation.AUTO")
        _check_flags(self)

    def plain(self) -> dict[str, bool | str]:
        """The settings by name, as values that JSON has."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}

    def statements(self) -> tuple[str, ...]:
        """What each setting that differs from its default changes here, one sentence each."""
        default = CompileConfig()
        return tuple(
            f"CompileConfig.{name}={_shown(getattr(self, name))}: {_EFFECT[name]}"
            for name in (field.name for field in fields(self))
            if getattr(self, name) != getattr(default, name)
        )

    def without_effect(self) -> tuple[str, ...]:
        """The `statements` about settings that change nothing here."""
        return tuple(statement for statement in self.statements() if _NOTHING in statement)


@dataclass(frozen=True, slots=True)
class SpecializationConfig:
    """Settings of the trace of one kernel: ``@nki.jit(specialization_config=SpecializationConfig(...))``.

    Attributes:
        allow_nested_config_override: a kernel that calls another one whose `CompileConfig` differs warns and goes on
            with its own, instead of raising LaunchError ``jit.nested-config``.
    """

    allow_nested_config_override: bool = False

    def __post_init__(self) -> None:
        _check_flags(self)


_NOTHING = "no effect"
_EFFECT = {
    "address_rotation": "tensors without an address are packed tightly, or spread over the memory",
    "non_ssa_legalization": f"{_NOTHING}, a tensor that is written more than once is memory like any other",
    "dead_code_elim": "instructions whose results nobody reads are dropped",
    "barrier_check": f"{_NOTHING}, barriers are always checked",
    "prefetch_auto": "loops on the device are unrolled by NKI_PREFETCH_RING_SIZE",
    "nki_alloc_fallback": f"{_NOTHING}, tight packing is always tried when spreading does not fit",
    "spill": "tensors that do not fit wait in HBM",
}


def _check_flags(config: CompileConfig | SpecializationConfig) -> None:
    for field in fields(config):
        if isinstance(field.default, bool) and not isinstance(getattr(config, field.name), bool):
            raise _value(config, field.name, "True or False", str(field.default))


def _value(config: object, name: str, expected: str, example: str) -> LaunchError:
    return LaunchError(
        "jit.config",
        f"{type(config).__name__}: {name} is {getattr(config, name)!r}",
        rule=f"{name} is {expected}",
        source="nki/api/nki.compiler (NKI 0.7)",
        fix=f"write {name}={example}",
    )


def _shown(value: object) -> str:
    return value.name if isinstance(value, Enum) else repr(value)


if not TYPE_CHECKING:  # which would not see misspelt names

    def __getattr__(name: str) -> NoReturn:
        raise missing_name("nki.compiler", name, COMPILER)
