"""`nki_op`: an operator of ``torch.library`` whose body calls kernels."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.core.source import of_function
from nki.interop.torch.operator.mutation_check import MutationWatch, watching
from nki.interop.torch.operator.require_backward import require_backward
from nki.interop.torch.user_location import user_line
from nki.kernel import Kernel

_MOST_SEEN = 1024
"""How many kinds of calls of an operator are remembered."""

BODIES: dict[Any, Callable[..., Any]] = {}
"""What operators do, by overload: a graph that is compiled as a whole has the body in the place of the operator."""

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")


def nki_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: str | list[str] | None = None,
    schema: str | None = None,
) -> Any:
    """Make an operator of a function with type hints, whose body calls kernels: ``@nki_op("ns::op", mutates_args=())``.

    Eager calls run the body. Where PyTorch needs shapes only (``torch.compile``, ``torch.export``, fake and meta
    tensors), the body runs with tensors that have no values, and its kernels are traced and compiled but do not run.
    The result has the methods of `torch.library.custom_op`: `register_autograd`, `register_vmap`, `register_fake` for
    bodies whose shapes depend on values, and so on.

    Args:
        name: namespace and name.
        fn: the body; without it, the result is a decorator.
        mutates_args: names of the arguments that the body writes to.
        device_types: devices that the body is for; None for all.
        schema: the operator's schema, where type hints do not say it.

    Raises:
        LaunchError: a name of another form ("torch.operator-name"), type hints that PyTorch cannot use
            ("torch.operator-schema"), in a call an argument that is written to and not declared
            ("torch.undeclared-write"), or a gradient that would be lost ("torch.no-backward").
    """

    def decorate(body: Callable[..., Any]) -> Any:
        return _operator(name, body, mutates_args, device_types, schema)

    return decorate if fn is None else decorate(fn)


def _operator(
    name: str,
    body: Callable[..., Any],
    mutates_args: str | Iterable[str],
    device_types: str | list[str] | None,
    schema: str | None,
) -> Any:
    function = body.func if isinstance(body, Kernel) else body
    if not inspect.isfunction(function):
        raise _refused("torch.operator-schema", f"fn={shown(function)}", "the body is a function with type hints")
    _check_name(name, function)
    declared = _declared(mutates_args)
    if device_types is not None and not (isinstance(device_types, str | list) and all(map(_is_text, device_types))):
        raise _refused("torch.operator-schema", f"device_types={shown(device_types)}", "device_types are names")
    if schema is not None and not isinstance(schema, str):
        raise _refused("torch.operator-schema", f"schema={shown(schema)}", "a schema is a str")
    watched = _Watched(name, body, function, frozenset(declared))

    @functools.wraps(function)
    def eager(*args: Any, **kwargs: Any) -> Any:
        return watched.eager(*args, **kwargs)

    try:
        schema = schema or torch.library.infer_schema(function, mutates_args=declared)
        made = torch.library.custom_op(name, eager, mutates_args=declared, device_types=device_types, schema=schema)
    except (ValueError, RuntimeError) as error:
        raise _schema_error(name, function, error) from error
    made.register_fake(watched.watched)
    BODIES[made._opoverload] = body
    require_backward(made, f"call {made._name}.register_autograd(backward, setup_context=...), or use torch.no_grad()")
    return made


def _declared(mutates_args: str | Iterable[str]) -> tuple[str, ...]:
    """The names of the arguments that are written to."""
    names = tuple(mutates_args) if isinstance(mutates_args, Iterable) else (None,)
    if not all(map(_is_text, names)):
        raise _refused("torch.operator-schema", f"mutates_args={shown(mutates_args)}", "mutates_args are names")
    return (mutates_args,) if isinstance(mutates_args, str) else names


def _check_name(name: Any, function: Callable[..., Any]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise LaunchError(
            "torch.operator-name",
            f"nki_op got the name {name!r}",
            rule="an operator is named namespace::name",
            source="torch.library.custom_op",
            fix='write nki_op("mylib::my_op")',
            location=of_function(function.__code__),
        )


def _refused(code: str, got: str, rule: str) -> LaunchError:
    fix = 'write @nki_op("mylib::my_op", mutates_args=("x",)) above a function with type hints'
    return LaunchError(code, f"nki_op got {got}", rule=rule, fix=fix, location=user_line())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _schema_error(name: str, function: Callable[..., Any], error: Exception) -> LaunchError:
    return LaunchError(
        "torch.operator-schema",
        f"{name} has no schema: {error}",
        rule="every parameter and the result have type hints that PyTorch knows",
        source="torch.library.infer_schema",
        fix="write def op(x: torch.Tensor) -> torch.Tensor",
        location=of_function(function.__code__),
    )


class _Watched:
    """A body that is watched: always, or the first time that it gets tensors and values of a kind."""

    def __init__(
        self, name: str, body: Callable[..., Any], function: Callable[..., Any], declared: frozenset[str]
    ) -> None:
        self._name, self._body, self._function, self._declared = name, body, function, declared
        self._signature = inspect.signature(body)
        self._seen: set[Any] = set()

    def watched(self, *args: Any, **kwargs: Any) -> Any:
        arguments = self._signature.bind(*args, **kwargs).arguments
        with watching(MutationWatch(self._name, self._function, arguments, self._declared)):
            return self._body(*args, **kwargs)

    def eager(self, *args: Any, **kwargs: Any) -> Any:
        key = (tuple(map(_kind, args)), tuple((name, _kind(value)) for name, value in kwargs.items()))
        if key in self._seen:
            return self._body(*args, **kwargs)
        result = self.watched(*args, **kwargs)
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen.add(key)
        return result


def _kind(value: Any) -> Any:
    """What decides which arguments a body writes to."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, list | tuple):
        return tuple(map(_kind, value))
    return type(value), value
