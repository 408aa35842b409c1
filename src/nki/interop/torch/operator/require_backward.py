"""An operator without a backward refuses tensors that require a gradient, instead of losing it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch._library.autograd import make_autograd_impl

from nki.core.errors import LaunchError
from nki.interop.torch.user_location import user_line


def require_backward(operator: Any, fix: str) -> None:
    """Replace the autograd kernel of a custom operator by one that asks for a backward first.

    PyTorch's own one raises only in `backward`, far from the call. Its kernel is made by a private function, the only
    one that is used here: the check has to run before the operator writes anything.
    """
    plain = make_autograd_impl(operator._opoverload, operator)

    def checked(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if operator._backward_fn is None and torch.is_grad_enabled() and _requires_grad(args):
            raise LaunchError(
                "torch.no-backward",
                f"{operator._qualname} is called with a tensor that requires a gradient, and has no backward",
                rule="an operator that takes part in training has a registered backward",
                source="torch.library.register_autograd",
                fix=fix,
                location=user_line(),
            )
        return plain(keyset, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators", category=UserWarning)
        operator._lib.impl(operator._name, checked, "Autograd", with_keyset=True, allow_override=True)


def _requires_grad(args: tuple[Any, ...]) -> bool:
    return bool(torch._C._any_requires_grad(*args))
