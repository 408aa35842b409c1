"""Why operators of ATen have no converter, where the reason is in what they compute."""

from __future__ import annotations

from collections.abc import Mapping

_HOST = 'or leave it to the host: options={"fallback": "host"}'

_SIZES = ("the size of its result depends on values, which are only known when the model runs",
          f"write torch.where(mask, x, 0), or torch.nonzero_static with a size, {_HOST}")  # fmt: skip
_PYTHON = ("what Python does next depends on a value, which is only known when the model runs",
           f"keep the number as a tensor, write torch.where or torch.cond, {_HOST}")  # fmt: skip
_FACTORS = ("the device has no kernel for factorisations and solutions of linear equations",
            f"write it with products, {_HOST}")  # fmt: skip

_REASONS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount",
         "unique_dim_consecutive", "repeat_interleave"), _SIZES,
    ),
    **dict.fromkeys(("_local_scalar_dense", "equal", "allclose"), _PYTHON),
    **dict.fromkeys(
        ("_linalg_det", "_linalg_eigh", "_linalg_eigvals", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd",
         "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "linalg_cholesky_ex", "linalg_eig",
         "linalg_householder_product", "linalg_inv_ex", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_lstsq",
         "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_qr", "linalg_solve_triangular",
         "triangular_solve"), _FACTORS,
    ),
}  # fmt: skip


def reason_of(name: str) -> tuple[str, str] | None:
    """Why an operator such as "aten.nonzero.default" has no converter, and a way out; None if nobody wrote one."""
    parts = name.split(".")
    return _REASONS.get(parts[1]) if parts[0] == "aten" and len(parts) > 1 else None
