"""The reference: JAX's compiler for the host runs StableHLO text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax._src.lib import xla_client

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""Without LLVM's optimisations and MLIR: each module runs once, and is compiled in a fifth of the time."""

Array = npt.NDArray[Any]


def run(text: str, inputs: Sequence[Array]) -> list[Array]:
    """The results of the function `main`."""
    device = jax.devices("cpu")[0]
    devices = xla_client.DeviceList((device,))
    plain = re.sub(r" attributes \{nki\.[^}]*\}", "", text)
    executable = device.client.compile_and_load(plain, devices, _options())
    placed = [jax.device_put(array, device) for array in inputs]
    found = executable.execute_sharded(placed).disassemble_into_single_device_arrays()
    return [np.asarray(value[0]) for value in found]


def _options() -> xla_client.CompileOptions:
    options = xla_client.CompileOptions()
    options.env_option_overrides = list(QUICK.items())
    return options


def lowered(function: Any, *inputs: Any) -> str:
    """A function of JAX as text with locations."""
    return str(jax.jit(function, keep_unused=True).lower(*inputs).as_text(debug_info=True))


def assert_same(found: Sequence[Array], wanted: Sequence[Array], tolerance: float = 2e-5) -> None:
    """Integers and NaN are equal, floats close relative to the tensor's largest number; 2**-7 for small floats."""
    assert len(found) == len(wanted)
    for one, two in zip(found, wanted, strict=True):
        assert one.shape == two.shape
        if two.dtype.kind in "iub":
            np.testing.assert_array_equal(one, two)
            continue
        allowed = tolerance if two.dtype.itemsize > 2 else 2.0**-7
        one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
        finite = np.abs(two[np.isfinite(two)])
        scale = float(finite.max(initial=0.0))
        np.testing.assert_allclose(one, two, rtol=allowed, atol=allowed * scale)
        zeros = (one == 0) & (two == 0)
        np.testing.assert_array_equal(np.signbit(one[zeros]), np.signbit(two[zeros]))
