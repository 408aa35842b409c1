"""Annotations for kernel authors: ``a: nki.typing.tensor[128, 512]`` says what shape is expected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorAnnotation:
    """What ``tensor[...]`` gives: sizes as written, and whether the kernel changes the tensor.

    An annotation documents; it checks nothing by itself (the tracer knows the real shapes).
    """

    shape: tuple[object, ...]
    mutable: bool = False


class tensor:  # noqa: N801 - public name of the API
    """A tensor argument; ``tensor[128, 512]`` with its expected sizes."""

    def __class_getitem__(cls, shape: object) -> TensorAnnotation:
        return TensorAnnotation(shape if isinstance(shape, tuple) else (shape,))


class mutable_tensor:  # noqa: N801
    """A tensor argument that the kernel writes to; ``mutable_tensor[128, 512]`` with its expected sizes."""

    def __class_getitem__(cls, shape: object) -> TensorAnnotation:
        return TensorAnnotation(shape if isinstance(shape, tuple) else (shape,), mutable=True)
