"""Coefficients of the elementary functions; made by scripts/fit_elementary.py, not to be edited."""

from __future__ import annotations

# exp(r) = 1 + r + r * r * p(r) for |r| <= log(2) / 2, and what rounding adds.
# Error of the fit, before float32 arithmetic: 2**-28.0 of the result.
EXP = (
    0.49999988079071045,
    0.166665181517601,
    0.04166964814066887,
    0.00836894754320383,
    0.0013745338656008244,
)

# log(1 + f) = f - f * f / 2 + f * f * f * p(f) for |f| <= 1 / 3.
# Error of the fit, before float32 arithmetic: 2**-27.6 of the result.
LOG = (
    0.3333320617675781,
    -0.24999888241291046,
    0.2001083493232727,
    -0.16676388680934906,
    0.14000104367733002,
    -0.12240840494632721,
    0.14008815586566925,
    -0.12647147476673126,
)

# log((2 + s) / (2 - s)) = s + s * s * s * p(s * s) for 0 <= s <= 2 / 3.
# Error of the fit, before float32 arithmetic: 2**-27.7 of the result.
LOG_UNIT = (
    0.08333301544189453,
    0.012506774626672268,
    0.002187499310821295,
    0.000547243922483176,
)

# sin(r) = r + r * r * r * p(r * r) for |r| <= pi / 2, and what rounding adds.
# Error of the fit, before float32 arithmetic: 2**-27.3 of the result.
SIN = (
    -0.16666659712791443,
    0.008333069272339344,
    -0.00019809778314083815,
    2.606103180369246e-06,
)

# arctan(r) = r + r * r * r * p(r * r) for |r| <= 1.
# Error of the fit, before float32 arithmetic: 2**-25.6 of the result.
ARCTAN = (
    -0.33333125710487366,
    0.19993135333061218,
    -0.14205820858478546,
    0.10645326226949692,
    -0.07508143037557602,
    0.04269272834062576,
    -0.016049757599830627,
    0.002841484034433961,
)

# erf(x) = x + x * p(x * x) for |x| < 1.
# Error of the fit, before float32 arithmetic: 2**-29.3 of the result.
ERF_NEAR = (
    0.12837916612625122,
    -0.3761262595653534,
    0.1128358244895935,
    -0.026853643357753754,
    0.005187962669879198,
    -0.0008006793214008212,
    7.842288323445246e-05,
)

# erf(x) = 1 - exp(-p(x - 1)) for 1 <= x < 4.
# Error of the fit, before float32 arithmetic: 2**-26.7 of the result.
ERF_FAR = (
    1.8496055603027344,
    2.638965368270874,
    0.8431304097175598,
    0.04146129637956619,
    -0.009833017364144325,
    0.0017879994120448828,
    -0.00017646054038777947,
)

# Phi(-t) = exp(-t * t / 2) * p(1 - 3 / (t + 1.5)) / (t + 1.5) for 0 <= t < 15.
# Error of the fit, before float32 arithmetic: 2**-26.1 of the result.
TAIL = (
    0.6173419952392578,
    -0.19509947299957275,
    -0.057495489716529846,
    0.01789645291864872,
    0.01764124259352684,
    0.00398853188380599,
    -0.0024382281117141247,
    -0.0027117563877254725,
    -0.001034862594678998,
    0.00025280637782998383,
    0.00046158977784216404,
    0.00014968834875617176,
)
