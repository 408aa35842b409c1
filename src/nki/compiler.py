"""``nki.compiler``: the per-kernel settings that ``nki.jit`` takes, and what they change here."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from nki.core.errors import LaunchError


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

    The names are those of NKI 0.7. None of them changes what this toolchain does yet; a kernel whose setting is not the
    default warns when it is made, and says in its report what the setting would do (`statements`).

    Attributes:
        address_rotation: whether tensors may move to other addresses.
        non_ssa_legalization: whether the compiler legalizes tensors that are written more than once.
        dead_code_elim: whether the compiler may drop tensors that nothing reads.
        barrier_check: whether the barriers of the cores are checked; here they always are, while a kernel runs.
        prefetch_auto: whether the compiler reserves SBUF and prefetches loads by itself.
        nki_alloc_fallback: whether another allocator is tried if the first one fails.
    """

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool = False
    dead_code_elim: bool = False
    barrier_check: bool = False
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.address_rotation, AddressRotation):
            raise _value(self, "address_rotation", "a member of nki.compiler.AddressRotation", "AddressRotation.AUTO")
        _check_flags(self)

    def statements(self) -> tuple[str, ...]:
        """What each setting that differs from its default changes here, one sentence each."""
        default = CompileConfig()
        return tuple(
            f"CompileConfig.{name}={_shown(getattr(self, name))}: {_EFFECT[name]}"
            for name in (field.name for field in fields(self))
            if getattr(self, name) != getattr(default, name)
        )


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


_EFFECT = {
    "address_rotation": "no effect yet, tensors without an address have no fixed place in the NumPy machine",
    "non_ssa_legalization": "no effect yet, no pass renames tensors",
    "dead_code_elim": "no effect yet, no pass removes instructions",
    "barrier_check": "no effect, barriers are always checked while a kernel runs",
    "prefetch_auto": "no effect yet, no pass moves loads",
    "nki_alloc_fallback": "no effect, there is one allocator, and its failure is always an error",
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
