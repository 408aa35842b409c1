"""Derivatives that authors give their kernels (`Kernel.defvjp`), and one call of such a kernel, for every framework."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.core.source import of_function
from nki.frontend.host import kind_of
from nki.frontend.values import Parameters, bind, fields_of, is_record, leaves_of, map_leaves

Forward = Callable[..., tuple[Any, Any]]
Backward = Callable[..., Any]

_RULE = "a kernel's derivative is two functions: forward(*args, **kwargs) and backward(residuals, gradient, ...)"


@dataclass(frozen=True, slots=True)
class Derivative:
    """What the author of a kernel says about its derivative, in the words of `jax.custom_vjp`.

    Attributes:
        forward: called with the kernel's arguments; returns its result and what `backward` needs. None: the kernel
            itself, and the arguments that are arrays, as a tuple.
        backward: called with what `forward` kept, the derivative with respect to the result, and by name the constants
            that it has parameters for.
        wanted: those constants; None for all, where `backward` collects keywords.
    """

    forward: Forward | None
    backward: Backward
    wanted: tuple[str, ...] | None


def derivative_of(function: Callable[..., Any], forward: Any, backward: Any) -> Derivative:
    """A derivative for the kernel of a function.

    Raises:
        LaunchError: "jit.defvjp" for what is no function, for a `backward` that cannot be called with residuals and a
            gradient, and for one that wants something that is no parameter of the kernel.
    """
    for name, value in (("forward", forward), ("backward", backward)):
        if not callable(value) and not (name == "forward" and value is None):
            raise _misfit(function, f"{name}={shown(value)}", f"pass a function as {name}")
    parameters = inspect.signature(getattr(backward, "func", backward)).parameters
    kinds = [each.kind for each in parameters.values()]
    taken = [name for name, each in parameters.items() if each.kind in _POSITIONAL][:2]
    if len(taken) < 2 and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise _misfit(
            function, f"a backward that takes ({', '.join(parameters)})", "write def backward(residuals, gradient)"
        )
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return Derivative(forward, backward, None)
    wanted = [each for each in parameters.values() if each.name not in taken and each.kind in _BY_NAME]
    known = Parameters(function)
    unknown = [each.name for each in wanted if each.name not in known and each.default is each.empty]
    if unknown:
        raise _misfit(
            function,
            f"a backward that takes {unknown[0]}, which is no parameter of the kernel",
            f"name some of {', '.join(known)}, or keep it among the residuals",
        )
    return Derivative(forward, backward, tuple(each.name for each in wanted if each.name in known))


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _misfit(function: Callable[..., Any], got: str, fix: str) -> LaunchError:
    return LaunchError("jit.defvjp", f"{function.__name__}.defvjp got {got}", rule=_RULE, source="docs/jax.md", fix=fix)


class Differentiable(Protocol):
    """A kernel that may have a derivative."""

    @property
    def func(self) -> Callable[..., Any]:
        """The undecorated function."""

    @property
    def derivative(self) -> Derivative | None:
        """What its author says of it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The call, with any framework's arrays."""


class DifferentiableCall:
    """One call of a kernel that has a derivative: its arrays, and everything else.

    Attributes:
        function: the kernel's undecorated one.
        name: of the kernel.
        arrays: the arrays among its arguments, in the order of the parameters.
    """

    def __init__(self, kernel: Differentiable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise what a call of the kernel with other parameters raises."""
        assert kernel.derivative is not None, f"{kernel.func.__name__} has no derivative"
        self.function, self.name = kernel.func, kernel.func.__name__
        self._kernel, self._derivative = kernel, kernel.derivative
        everything = bind(kernel.func, args, kwargs, self.name)
        self._signature = inspect.signature(kernel.func)
        self._given = self._signature.bind(*args, **kwargs).arguments
        self._owners = {name: value for name, value in self._given.items() if any(map(_is_array, leaves_of([value])))}
        self._constants = {name: value for name, value in everything.items() if name not in self._owners}
        self.arrays: list[Any] = []
        map_leaves(list(self._given.values()), self._take)

    def _take(self, leaf: Any) -> Any:
        if _is_array(leaf):
            self.arrays.append(leaf)
        return leaf

    def forward(self, arrays: Sequence[Any]) -> tuple[Any, Any]:
        """The kernel's result for these arrays, and what the backward function gets of them.

        Raises:
            LaunchError: "jit.gradients" if the author's function returns something else than two things.
        """
        filled = self._filled(arrays)
        args, kwargs = self._bound(filled)
        function = self._derivative.forward
        if function is None:
            return self._kernel(*args, **kwargs), tuple(filled[name] for name in self._owners)
        returned = function(*args, **kwargs)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise self._refused(f"forward returned {shown(returned)}", "return (result, residuals)")
        return returned

    def arguments(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call, with other arrays."""
        return self._bound(self._filled(arrays))

    def _bound(self, filled: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = inspect.BoundArguments(self._signature, filled)
        return bound.args, bound.kwargs

    def _filled(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The arguments by parameter, with other arrays."""
        rest = iter(arrays)
        return {
            name: map_leaves(value, lambda leaf: next(rest) if _is_array(leaf) else leaf)
            for name, value in self._given.items()
        }

    def backward(self, residuals: Any, gradient: Any) -> list[Any]:
        """The derivative with respect to each array, None where it is zero; `gradient` has the form of the result.

        Raises:
            LaunchError: "jit.gradients" if the author's function returns another number of gradients or other shapes,
                or wants a constant that is an array in this call.
        """
        returned = self._derivative.backward(residuals, gradient, **self._wanted())
        by_parameter = self._by_parameter(returned)
        found: list[Any] = []
        for name, value in self._owners.items():
            found.extend(self._aligned(value, by_parameter.get(name), name))
        return found

    def _wanted(self) -> dict[str, Any]:
        names = self._derivative.wanted
        if names is None:
            return self._constants
        arrays = [name for name in names if name in self._owners]
        if arrays:
            raise self._refused(
                f"backward takes {arrays[0]} by name, which is an array in this call",
                f"give defvjp a forward that keeps {arrays[0]} among the residuals",
            )
        return {name: self._constants[name] for name in names if name in self._constants}

    def _by_parameter(self, returned: Any) -> dict[str, Any]:
        names = list(self._owners)
        if isinstance(returned, Mapping):
            strangers = [name for name in returned if name not in names]
            if not strangers:
                return dict(returned)
            problem = f"a gradient of {strangers[0]}, which has no array in this call"
        elif isinstance(returned, tuple | list):
            if len(returned) == len(names):
                return dict(zip(names, returned, strict=True))
            problem = f"{len(returned)} gradients for {len(names)} arguments that are arrays: {', '.join(names)}"
        else:
            problem = shown(returned)
        raise self._refused(f"backward returned {problem}", "return a tuple with one gradient, or None, for each")

    def _aligned(self, argument: Any, gradient: Any, path: str) -> Iterator[Any]:
        """The gradient of each array in an argument, which may be a tree; the gradient is one of the same form."""
        if _is_array(argument):
            self._check_shape(argument, gradient, path)
            yield gradient
            return
        items, gradients = _items(argument), _items(gradient)
        if gradient is not None and items.keys() != gradients.keys():
            fix = "return a tree of the argument's form, with None where there is no gradient"
            raise self._refused(f"backward returned {shown(gradient)} for {path}, which is a tree", fix)
        for key, item in items.items():
            yield from self._aligned(item, gradients.get(key), f"{path}[{key!r}]")

    def _check_shape(self, array: Any, gradient: Any, path: str) -> None:
        if gradient is None:
            return
        shape = getattr(gradient, "shape", None)
        if shape is None or tuple(shape) != tuple(array.shape):
            got = shown(gradient) if shape is None else f"shape {tuple(shape)}"
            raise self._refused(
                f"backward returned {got} for {path}, which has shape {tuple(array.shape)}",
                "return an array of the argument's shape, or None",
            )

    def _refused(self, problem: str, fix: str) -> LaunchError:
        author = self._derivative.backward if problem.startswith("backward") else self._derivative.forward
        code = getattr(getattr(author, "func", author), "__code__", self.function.__code__)
        return LaunchError(
            "jit.gradients",
            f"{self.name}: {problem}",
            rule=_RULE,
            source="docs/jax.md",
            fix=fix,
            location=of_function(code),
        )


def _is_array(value: Any) -> bool:
    return kind_of(value) is not None


def _items(tree: Any) -> Mapping[Any, Any]:
    """What a tree holds, by index, key or attribute; nothing for what is no tree."""
    if isinstance(tree, list | tuple):
        return dict(enumerate(tree))
    if isinstance(tree, dict):
        return tree
    return fields_of(tree) if is_record(tree) else {}
