"""``neuronxcc.nki`` as a name of `nki.beta1`, for files that were written for the first NKI."""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType

from nki.beta1 import library

_ALIASES = {
    "nki": "nki.beta1",
    "nki._private": "nki.beta1.private_api",
    "nki._private.private_api": "nki.beta1.private_api",
    "nki.compiler": "nki.beta1.compiler",
    "nki.compiler.backends": "nki.beta1.backends",
    "nki.compiler.backends.neuron": "nki.beta1.backends",
    "nki.compiler.backends.neuron.dimensions": "nki.beta1.backends",
    "nki.compiler.backends.neuron.indexing": "nki.beta1.backends",
    "nki.compiler.backends.neuron.tensor": "nki.beta1.backends",
    "nki.isa": "nki.beta1.isa",
    "nki.isa.constants": "nki.beta1.isa.constants",
    "nki.isa.neuron_isa": "nki.beta1.isa",
    "nki.language": "nki.beta1.language",
    "nki.language.constants": "nki.beta1.language.constants",
    "nki.nccl": "nki.beta1.nccl",
    "nki.nccl.collectives": "nki.beta1.nccl",
    "nki.typing": "nki.beta1.typing",
}


_OFF = logging.CRITICAL + 10
"""A level above all messages: the compiler's package added it to `logging`, and harnesses disable what is up to it."""


def serve(package: ModuleType | None = None) -> None:
    """Let ``import neuronxcc.nki`` find the first NKI of this package, in this process.

    Args:
        package: the module ``neuronxcc`` of the distribution; one is made otherwise.
    """
    top = package if package is not None else sys.modules.setdefault("neuronxcc", _package())
    for name, own in _ALIASES.items():
        module = importlib.import_module(own)
        sys.modules[f"neuronxcc.{name}"] = module
        if "." not in name:
            setattr(top, name, module)
    vars(logging).setdefault("OFF", _OFF)
    library.install()


def _package() -> ModuleType:
    made = ModuleType("neuronxcc", "The name of the first NKI; `nki.beta1` has the code.")
    made.__path__ = []
    return made
