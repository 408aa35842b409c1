"""``nki.simulator``: the entry point that framework integrations call on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nki.core.errors import LaunchError
from nki.kernel import Kernel, simulate


def simulate_kernel(
    func: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, _lnc: int | None = None
) -> Any:
    """Run a kernel eagerly: ``nki.simulate(func)[_lnc](*args, **kwargs)``.

    Args:
        func: a kernel or a plain function.
        args: positional arguments, as a sequence.
        kwargs: keyword arguments by name.
        _lnc: number of cores; None keeps what the kernel has.

    Raises:
        LaunchError: `args` or `kwargs` is no sequence or mapping (``simulator.arguments``).
    """
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping | None):
        raise LaunchError(
            "simulator.arguments",
            f"simulate_kernel got args of type {type(args).__name__} and kwargs of type {type(kwargs).__name__}",
            rule="args is a sequence of arguments, kwargs a mapping of arguments by name",
            source="vllm-neuron/docs/model-dev/nki_cpu_simulator.md",
            fix="write simulate_kernel(kernel, (a, b), {}, 1)",
        )
    kernel: Kernel = simulate(func)
    return (kernel if _lnc is None else kernel[_lnc])(*args, **(kwargs or {}))
