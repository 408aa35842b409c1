"""``neuronxcc.nki.typing``: annotations of kernels, and tensors that have a shape and a dtype alone."""

from __future__ import annotations

from typing import Any

from nki.beta1.errors import refused
from nki.frontend.host import ShapeDtype
from nki.spec.allocation import checked_dtype
from nki.typing import TensorAnnotation, mutable_tensor

mutable = "mutable"
"""``tensor[mutable]`` is what `mutable_tensor` is."""

__all__ = ["TensorAnnotation", "mutable", "mutable_tensor", "scalar", "tensor"]


class tensor:  # noqa: N801 - a name of the language
    """A tensor argument.

    ``tensor[128, 512]`` annotates a parameter; ``tensor[[128, 512], nl.float32]`` stands for an array where only shape
    and dtype count, as `nki.benchmark` takes it.
    """

    def __class_getitem__(cls, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], list | tuple):
            return ShapeDtype(tuple(int(size) for size in key[0]), checked_dtype(key[1]))
        if key == mutable:
            return TensorAnnotation((), mutable=True)
        return TensorAnnotation(key if isinstance(key, tuple) else (key,))


def scalar(value: Any) -> Any:
    """A number of run time, for the condition of a ``while`` or the trips of a ``for``, which are not built.

    Raises:
        Beta1Error: always ("beta1.dynamic_control_flow_not_supported").
    """
    raise refused(
        "dynamic_control_flow_not_supported",
        f"nt.scalar({value!r}) makes a number that is known when the kernel runs",
        "write the loop in a kernel of today, with nl.while_loop or nl.fori_loop, and call that kernel",
        rule="loops of the first NKI are unrolled while a kernel is traced",
    )
