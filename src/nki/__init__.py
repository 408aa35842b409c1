"""NKI, the Neuron Kernel Interface: check, compile, run and time Trainium kernels on any machine."""

from __future__ import annotations

from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from nki import collectives as collectives
from nki import dtype as dtype
from nki import isa as isa
from nki import lang as lang
from nki import language as language
from nki.beta1 import neuronxcc as _neuronxcc
from nki.core import errors as errors
from nki.core.names import renamed_modules as _renamed_modules
from nki.core.names.removed import missing_name
from nki.core.names.removed_table import NKI
from nki.driver import frameworks as _frameworks
from nki.driver.prepare import host_target as _host_target
from nki.frontend.host import ShapeDtype
from nki.kernel import jit, simulate
from nki.measure import benchmark, profile
from nki.prediction import predict
from nki.spec.sink import answer_on_the_host as _answer_on_the_host
from nki.tune.autotune import autotune
from nki.tune.config import Config
from nki.version import version as _version

__all__ = [
    "Config",
    "ShapeDtype",
    "autotune",
    "benchmark",
    "collectives",
    "dtype",
    "errors",
    "isa",
    "jit",
    "lang",
    "language",
    "predict",
    "profile",
    "simulate",
]

_neuronxcc.install()
_renamed_modules.install()
_answer_on_the_host(_host_target)
_frameworks.declare("jax", "nki.interop.jax.framework:FRAMEWORK")  # loaded when a kernel meets what JAX is tracing


if TYPE_CHECKING:  # which would not see misspelt names if there were a function for them
    __version__: str
else:

    def __getattr__(name: str) -> str:
        if name == "__version__":
            return _version()
        # Only files count: what somebody put into `sys.modules` may have no spec, for which `find_spec` fails.
        if not name.startswith("_") and PathFinder.find_spec(f"nki.{name}", __path__) is not None:
            raise AttributeError(f"module 'nki' has no attribute {name!r} before `import nki.{name}`", name=name)
        raise missing_name("nki", name, NKI)
