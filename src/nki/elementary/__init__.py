"""Functions that IEEE 754 does not define, each written once over primitives that it does.

Every function takes an array namespace and float32 values, ``exp(x, a)``, and uses only operations of
`nki.spec.arrays.Arrays` whose results are defined to the last bit, the fused multiply-add among them; executors neither
fuse two operations nor ask a library of the platform. Hence all give the same bits. NaN stays NaN, infinities and
signed zeros come out as in C99, and subnormal numbers are ordinary ones, as arguments and as results. docs/accuracy.md
has the measured errors.
"""

from nki.elementary.arctangent import arctan
from nki.elementary.error_function import erf
from nki.elementary.exponential import DROP, decay, exp, lifted_decay
from nki.elementary.logarithm import log, log1p, log1p_unit
from nki.elementary.methods import Functions
from nki.elementary.normal import lifted_gaussian, scaled_tail
from nki.elementary.power_function import power
from nki.elementary.scaling import exponent, ldexp
from nki.elementary.sine import sin
from nki.elementary.tangent import tanh

__all__ = [
    "DROP",
    "Functions",
    "arctan",
    "decay",
    "erf",
    "exp",
    "exponent",
    "ldexp",
    "lifted_decay",
    "lifted_gaussian",
    "log",
    "log1p",
    "log1p_unit",
    "power",
    "scaled_tail",
    "sin",
    "tanh",
]
