"""The name of the first NKI, ``neuronxcc.nki``; `nki.beta1` has the code.

It is not the Neuron compiler, and refuses to hide one that is installed.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution

from nki.beta1.served import serve
from nki.version import version


def _refuse_to_hide_the_compiler() -> None:
    """Raise if the Neuron compiler is installed: whoever has it means that one."""
    try:
        installed = distribution("neuronx-cc")
    except PackageNotFoundError:
        return
    raise ImportError(
        f"neuronx-cc {installed.version} is installed and hidden by {__file__}: "
        "uninstall open-nki-neuronxcc, or import nki.beta1 instead"
    )


_refuse_to_hide_the_compiler()
serve(sys.modules[__name__])

__version__ = version()
