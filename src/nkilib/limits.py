"""Checks that kernels begin with: shapes, dtypes, options and targets, each with an error that names the limit."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import nki.isa as nisa
from nkilib.errors import KernelLimit, WithoutEffect


def shape(name: str, tensor: Any, expected: Sequence[int | str], sizes: dict[str, int] | None = None) -> dict[str, int]:
    """Check a tensor's shape, and give its dimensions names.

    Args:
        name: of the argument.
        tensor: the argument.
        expected: for each dimension a number, or a name that stands for one number throughout `sizes`.
        sizes: names that are known already; new ones are added to it.

    Returns:
        `sizes`, or a new dict.

    Raises:
        KernelLimit: another rank or another size (``nkilib.shape``).
    """
    known = {} if sizes is None else sizes
    actual = tuple(tensor.shape)
    spelled = f"({', '.join(map(str, expected))}{',' if len(expected) == 1 else ''})"
    if len(actual) != len(expected):
        raise KernelLimit(
            "nkilib.shape",
            f"{name} has {len(actual)} dimensions, {list(actual)}, not {len(expected)}",
            rule=f"{name} is {spelled}",
            fix=f"reshape {name} to {spelled}",
            shape=list(actual),
        )
    for place, (size, wanted) in enumerate(zip(actual, expected, strict=True)):
        number = known.setdefault(wanted, size) if isinstance(wanted, str) else wanted
        if size != number:
            meaning = f"{wanted}={number}" if isinstance(wanted, str) else str(number)
            raise KernelLimit(
                "nkilib.shape",
                f"dimension {place} of {name} is {size}, not {meaning}: {name} is {list(actual)}",
                rule=f"{name} is {spelled}"
                + (f", where {wanted} is the same in all tensors" if number != wanted else ""),
                fix=f"pass {name} with dimension {place} of size {number}",
                shape=list(actual),
            )
    return known


def between(name: str, value: int, least: int, most: int, why: str = "") -> None:
    """Check that a size is within limits.

    Raises:
        KernelLimit: it is not (``nkilib.shape``).
    """
    if not least <= value <= most:
        raise KernelLimit(
            "nkilib.shape",
            f"{name} is {value}",
            rule=f"{name} is {least} to {most}" + (f": {why}" if why else ""),
            fix=f"call the kernel for {name} of at most {most}" if value > most else f"pass {name} of at least {least}",
            **{"value": value, "least": least, "most": most},
        )


def multiple(name: str, value: int, of: int, why: str = "") -> None:
    """Check that a size is a multiple of a number.

    Raises:
        KernelLimit: it is not (``nkilib.shape``).
    """
    if value % of:
        raise KernelLimit(
            "nkilib.shape",
            f"{name} is {value}, {value % of} more than a multiple of {of}",
            rule=f"{name} is a multiple of {of}" + (f": {why}" if why else ""),
            fix=f"pad {name} to {value + of - value % of}",
            value=value,
            multiple=of,
        )


def dtype(name: str, tensor: Any, allowed: Collection[Any]) -> None:
    """Check a tensor's dtype.

    Raises:
        KernelLimit: it is none of those (``nkilib.dtype``).
    """
    if tensor.dtype not in allowed:
        names = ", ".join(sorted(str(each) for each in allowed))
        raise KernelLimit(
            "nkilib.dtype",
            f"{name} is {tensor.dtype}",
            rule=f"{name} is {names}" if len(allowed) == 1 else f"{name} is one of {names}",
            fix=f"convert {name} to {names.split(', ')[0]}",
            dtype=str(tensor.dtype),
        )


def same_dtype(**tensors: Any) -> None:
    """Check that tensors have one dtype; None is left out.

    Raises:
        KernelLimit: they do not (``nkilib.dtype``).
    """
    found = {name: tensor.dtype for name, tensor in tensors.items() if tensor is not None}
    if len(set(found.values())) > 1:
        first = next(iter(found.values()))
        raise KernelLimit(
            "nkilib.dtype",
            "dtypes differ: " + ", ".join(f"{name} is {kind}" for name, kind in found.items()),
            rule=f"{', '.join(found)} have one dtype",
            fix=f"convert them to {first}",
        )


def one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    """Check an option.

    Raises:
        KernelLimit: it is none of those (``nkilib.option``).
    """
    if value not in allowed:
        names = ", ".join(str(each) for each in allowed)
        raise KernelLimit(
            "nkilib.option", f"{name} is {value!r}", rule=f"{name} is one of {names}", fix=f"pass one of {names}"
        )


def need(condition: bool, name: str, actual: Any, rule: str, fix: str) -> None:
    """Check what holds between arguments.

    Raises:
        KernelLimit: it does not hold (``nkilib.argument``).
    """
    if not condition:
        raise KernelLimit("nkilib.argument", f"{name} is {actual}", rule=rule, fix=fix)


def layout(condition: bool, name: str, actual: Any, rule: str, fix: str) -> None:
    """Check the order of a tensor's dimensions, where sizes tell.

    Raises:
        KernelLimit: it is another one (``nkilib.layout``).
    """
    if not condition:
        raise KernelLimit("nkilib.layout", f"{name} is {actual}", rule=rule, fix=fix)


def not_built(options: Mapping[str, Any], kernel: str) -> None:
    """Refuse documented options that this library does not compute yet.

    Args:
        options: by name the value that was passed, or None where nothing asks for the option.
        kernel: its name.

    Raises:
        KernelLimit: one of them is not None (``nkilib.not-built``).
    """
    for name, value in options.items():
        if value is not None:
            raise KernelLimit(
                "nkilib.not-built",
                f"{kernel} does not have {name} yet, and got {str(value)[:80]}",
                rule="a documented option that is not built is refused, never ignored",
                fix=f"call {kernel} without {name}, and compute that part beside it",
                option=name,
            )


def without_effect(kernel: str, why: str, **arguments: Any) -> None:
    """Warn of arguments that the published kernel takes and does not look at; None is left out.

    Args:
        why: they have no effect, as a part of a sentence.
    """
    given = [name for name, value in arguments.items() if value is not None]
    if given:
        warnings.warn(WithoutEffect(kernel, given, why), stacklevel=2)


def belonging(kernel: str, name: str, value: Any, wanted: bool, to: str) -> Any:
    """An argument that another one asks for: the value, or None where nobody reads it, which is told.

    Args:
        kernel: its name.
        wanted: whether the other one asks for it.
        to: the other one.

    Raises:
        KernelLimit: it is asked for and not there (``nkilib.argument``).
    """
    need(value is not None or not wanted, name, "left out", f"{name} is given where {to} asks for it", f"pass {name}")
    if not wanted:
        without_effect(kernel, f"with this {to}", **{name: value})
    return value if wanted else None


def generation(kernel: str, least: int, why: str) -> None:
    """Check that the target's NeuronCore is new enough.

    Args:
        least: 2 for Trainium1, 3 for Trainium2, 4 for Trainium3.

    Raises:
        KernelLimit: it is older (``nkilib.target``).
    """
    actual = int(nisa.get_nc_version().value)
    if actual < least:
        raise KernelLimit(
            "nkilib.target",
            f"the target has NeuronCore-v{actual}",
            rule=f"{kernel} needs NeuronCore-v{least} or later: {why}",
            fix=f"compile for trn{least - 1}",
            actual=actual,
            least=least,
        )
