"""Coefficients of the error function and the normal tail; made by scripts/fit_erf.py, not to be edited."""

from __future__ import annotations

FAR_START = 1.0
FAR_LIMIT = 4.0

# erf(x) = x + x * p(x * x) for |x| < FAR_START.
# Error of the fit, before float32 arithmetic: 2**-29.3 of the result.
NEAR = (
    0.12837916612625122,
    -0.3761262595653534,
    0.1128358244895935,
    -0.026853643357753754,
    0.005187962669879198,
    -0.0008006793214008212,
    7.842288323445246e-05,
)

# erf(x) = 1 - exp(-p(x - FAR_START)) for FAR_START <= x < FAR_LIMIT.
# Error of the fit, before float32 arithmetic: 2**-26.7 of the result.
FAR = (
    1.8496055603027344,
    2.638965368270874,
    0.8431304097175598,
    0.04146129637956619,
    -0.009833017364144325,
    0.0017879994120448828,
    -0.00017646054038777947,
)

# Phi(-t) = exp(-t * t / 2) * p(q) / (1 + t) with q = (t - 4) / (t + 4), for 0 <= t < 15.
# Error of the fit, before float32 arithmetic: 2**-26.1 of the result.
TAIL = (
    0.472053200006485,
    -0.09670346975326538,
    0.01399984210729599,
    0.028600158169865608,
    -0.03219962865114212,
    0.01793769933283329,
    -0.004996350966393948,
    -0.0002919669495895505,
    0.0006862431182526052,
    -7.806747453287244e-05,
    -7.895361341070384e-05,
)
