"""The names of the published PyTorch package, for models that run without a device; `nki.interop.torch` has the code.

Importing it registers the device ``neuron``.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

import nki as nki
from nki.beta1.frameworks import nki_jit
from nki.interop.torch import Wrapped, enable_device, nki_op, wrap_nki
from nki.version import version

__all__ = ["Wrapped", "nki", "nki_jit", "nki_op", "wrap_nki"]


def _refuse_to_hide_the_sdk() -> None:
    """Whoever has the SDK's package installed means that one."""
    try:
        installed = distribution("torch-neuronx")
    except PackageNotFoundError:
        return
    raise ImportError(
        f"torch-neuronx {installed.version} is installed and hidden by {__file__}: "
        "uninstall it, or import nki.interop.torch instead"
    )


_refuse_to_hide_the_sdk()
enable_device()

__version__ = version()
