"""Everything a user can do wrong, as exceptions that say what, where, the rule, the numbers and one way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki.core.source import UNKNOWN, Location, here
from nki.core.source import called_from as called_from
from nki.core.visible import visible
from nki.version import version


class NkiError(Exception):
    """Base of all errors of this toolchain.

    Args:
        code: stable identifier; `nki explain CODE` tells more.
        message: what is wrong, with the actual shapes, dtypes and numbers.
        fix: one thing to do about it.
        rule: the rule that was broken, as a sentence.
        source: the document that the rule comes from.
        facts: actual values by name, for programs that read errors.
        location: where; by default the user's innermost call site.

    Attributes:
        placed: whether the raiser named the location.
        found: findings that were collected before this error ended the work.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        fix: str = "",
        rule: str = "",
        source: str = "",
        facts: Mapping[str, Any] | None = None,
        location: Location | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.rule = rule
        self.source = source
        self.facts = dict(facts or {})
        self.placed = location is not None
        self.location = here() if location is None else location
        self.found: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return render(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.code, self.message, self.to_json(), self.location)

    def to_json(self) -> dict[str, Any]:
        """The error as an object that a program reads; every value is a JSON type."""
        return {
            "code": self.code,
            "severity": "error",
            "message": self.message,
            "fix": self.fix,
            "rule": self.rule,
            "source": self.source,
            "facts": {key: _plain(value) for key, value in self.facts.items()},
            "location": self.location.to_json(),
            "version": version(),
        }


class ArgumentError(NkiError, TypeError):
    """A call does not fit the signature: unknown, missing or repeated argument, or a value of the wrong kind."""


class DtypeError(NkiError, TypeError):
    """A dtype is unknown, or not usable where it was given."""


class TensorError(NkiError, ValueError):
    """A shape, an index, a view or an access pattern is not possible."""


class VerificationError(NkiError, ValueError):
    """An instruction breaks a rule of the target."""


class FrontendError(NkiError, TypeError):
    """The kernel uses something that cannot be traced or compiled."""


class TargetError(NkiError, ValueError):
    """An unknown target, or target data that does not hold together."""


class LaunchError(NkiError, ValueError):
    """A kernel was called or launched in a way that cannot work."""


class RemovedError(NkiError, AttributeError):
    """A name that an earlier version had."""


class RemovedImportError(NkiError, ImportError):
    """`RemovedError` where the name is imported: ``from nki import name``."""


class RemovedModuleError(RemovedImportError, ModuleNotFoundError):
    """`RemovedError` where a whole module is imported, as Python tells of one that is not there."""


class MissingError(NkiError, ImportError):
    """Something that has to be installed is not there."""


class DivergenceError(NkiError, RuntimeError):
    """The cores or ranks of one launch did not do the same things where they must."""


class ExecutionError(NkiError, RuntimeError):
    """Something that is only known while the kernel runs: an index out of bounds, a deadlock."""


class IRError(NkiError, ValueError):
    """IR that is not valid, or a file that is not what it should be."""


class ArtifactError(NkiError, ValueError):
    """A compiled file, or streams of instructions, that are not what this toolchain writes."""


class UsageError(NkiError, ValueError):
    """A wrong option, environment variable or command-line argument."""


def render(error: NkiError) -> str:
    """Plain text: headline, excerpt with caret, rule, fix, call chain, version."""
    parts = [f"error[{error.code}]: {error.message}"]
    if error.location is not UNKNOWN and error.location.frames:
        parts.append(error.location.excerpt())
    if error.rule:
        parts.append(f"  rule: {error.rule}" + (f"  [{error.source}]" if error.source else ""))
    if error.fix:
        parts.append(f"  fix: {error.fix}")
    chain = error.location.chain()
    if chain:
        parts.append(chain)
    parts.append(f"  nki {version()}; `nki explain {error.code}` tells more")
    return visible("\n".join(parts))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def _rebuild(kind: type[NkiError], code: str, message: str, data: dict[str, Any], location: Location) -> NkiError:
    return kind(
        code,
        message,
        fix=data["fix"],
        rule=data["rule"],
        source=data["source"],
        facts=data["facts"],
        location=location,
    )
