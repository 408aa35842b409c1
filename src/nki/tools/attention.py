"""What attention is, computed independently of any kernel, and how far a kernel's result may be from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-8
"""Largest relative error of rounding to bfloat16, which has 8 significant bits."""

ALLOWED = 2.0 * UNIT_ROUNDOFF * 1.03
"""Largest error of an element, relative to the same sum with absolute values of v.

The inputs are bfloat16 already, so that two roundings to bfloat16 are left: of each weight before the second product,
and of the result. Each changes an element by at most the unit roundoff times that sum. The 3 % are for what is much
smaller: the product of both, 0.2 %, and float32, where a score of standard normal inputs is off by at most 128 x 2^-24
times the sum of its 128 absolute products, about 2^-14, as are the weight and the sum that it is divided by: 1.6 %.
"""

BOUND = f"each element within 2 x 2^-8 x 1.03 = {ALLOWED:.3g} of the sum of |weight x v|: two roundings to bfloat16"


@dataclass(frozen=True, slots=True)
class Inputs:
    """One head: q and k (head, sequence), v (sequence, head), all bfloat16."""

    q: npt.NDArray[Any]
    k: npt.NDArray[Any]
    v: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a result is from the reference.

    Attributes:
        max_abs, relative: largest error, and 2-norm of the error over that of the reference.
        rounded_max_abs, rounded_relative: the same against the reference rounded to bfloat16.
        equal_share: share of elements that equal the rounded reference.
        of_allowed: largest error as a share of what is allowed; passed if at most 1.
    """

    max_abs: float
    relative: float
    rounded_max_abs: float
    rounded_relative: float
    equal_share: float
    of_allowed: float

    @property
    def passed(self) -> bool:
        """False for NaN as well."""
        return self.of_allowed <= 1.0

    def to_json(self) -> dict[str, Any]:
        """JSON types only; what is not finite becomes None."""
        return {key: value if np.isfinite(value) else None for key, value in asdict(self).items()}


def random_inputs(sequence: int, head: int, seed: int) -> Inputs:
    """Standard normal values, rounded to bfloat16."""
    generator = np.random.default_rng(seed)
    shapes = ((head, sequence), (head, sequence), (sequence, head))
    return Inputs(*(generator.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes))


def weights(inputs: Inputs, causal: bool) -> Doubles:
    """``softmax(q.T @ k / sqrt(head))`` in float64, (sequence, sequence); a row per query."""
    q, k = inputs.q.astype(np.float64), inputs.k.astype(np.float64)
    scores = q.T @ k / np.sqrt(q.shape[0])
    if causal:
        scores[np.triu_indices_from(scores, k=1)] = -np.inf
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


def accuracy(result: npt.NDArray[Any], inputs: Inputs, causal: bool) -> Accuracy:
    """Compare a result (sequence, head) with the reference in float64."""
    found, v, share = result.astype(np.float64), inputs.v.astype(np.float64), weights(inputs, causal)
    reference = share @ v
    rounded = reference.astype(ml_dtypes.bfloat16).astype(np.float64)
    allowed = ALLOWED * (share @ np.abs(v))
    error, rounded_error = np.abs(found - reference), np.abs(found - rounded)
    return Accuracy(
        float(error.max()),
        float(np.linalg.norm(error) / np.linalg.norm(reference)),
        float(rounded_error.max()),
        float(np.linalg.norm(rounded_error) / np.linalg.norm(rounded)),
        float((found == rounded).mean()),
        float((error / allowed).max()),
    )
