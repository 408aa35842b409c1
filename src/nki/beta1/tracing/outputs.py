"""What a kernel of the first NKI writes and returns: parameters stay as they are, and outputs are written.

A kernel that returns nothing writes to its last parameters, as the oldest kernels do; whatever it writes is meant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nki.beta1.errors import DOCUMENT, refused
from nki.core.nki_tensor import NkiTensor
from nki.core.source import Location
from nki.core.tensor import Buffer
from nki.frontend.trace import Tracer
from nki.spec.program import Issued
from nki.spec.rule import Finding
from nki.typing import TensorAnnotation, mutable_tensor


def annotations_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of the parameters; texts where one of them names what the module does not know."""
    try:
        return inspect.get_annotations(function, eval_str=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        return inspect.get_annotations(function)


def check_shape(annotation: Any, name: str, shape: tuple[int, ...]) -> None:
    """Raise Beta1Error if an array has another shape than ``tensor[128, 512]`` at its parameter says."""
    sizes = annotation.shape if isinstance(annotation, TensorAnnotation) else ()
    if sizes and all(isinstance(size, int) for size in sizes) and sizes != shape:
        raise refused(
            "annotation_shape_mismatch",
            f"shape of `{name}{list(shape)}` does not match the expected shape of {list(sizes)}",
            "pass an array of that shape, or change the annotation",
            facts={"shape": list(shape), "expected": list(sizes)},
        )


def wrong_outputs(function: Callable[..., Any], returned: Sequence[NkiTensor], tracer: Tracer) -> Iterator[Finding]:
    """The parameters that are changed and not returned, and outputs that nothing is written to, as errors."""
    written: dict[int, tuple[Buffer, Issued]] = {}
    items = list(tracer.program.body.walk())
    for issued in items:
        for view in issued.written():
            if not view.buffer.on_chip:
                written.setdefault(id(view.buffer), (view.buffer, issued))
    results = {id(tensor.view_record.buffer): tensor.view_record.buffer for tensor in returned}
    if returned:
        annotations = annotations_of(function)
        for key, (buffer, issued) in written.items():
            if buffer.role == "input" and key not in results:
                yield _changed(buffer, issued, annotations.get(buffer.name))
    if tracer.cores > 1:
        return  # another core may write it
    for key, buffer in results.items():
        if buffer.role == "temporary" and key not in written:
            yield _not_written(f"`{buffer.name}` is returned, and nothing is stored to it", buffer.location)
    if not returned and not written and all(issued.instruction.name != "device_print" for issued in items):
        yield _not_written("the kernel stores nothing, and returns nothing", tracer.program.location)


def _changed(buffer: Buffer, issued: Issued, annotation: Any) -> Finding:
    mutable = annotation is mutable_tensor or getattr(annotation, "mutable", "mutable" in str(annotation))
    if mutable:
        return _finding(
            "beta1.mutable_parameter_not_returned",
            f"the mutable parameter `{buffer.name}` is changed, and not returned",
            "a kernel that returns tensors returns the parameters that it changes, too",
            f"return it with the other results: return ..., {buffer.name}",
            issued.location,
        )
    return _finding(
        "beta1.cannot_update_immutable_parameter",
        f"cannot update immutable parameter `{buffer.name}`",
        "a kernel that returns tensors changes parameters that are annotated as mutable alone",
        f"write `{buffer.name}: nt.mutable_tensor` and return it, or store to a tensor of nl.shared_hbm",
        issued.location,
    )


def _not_written(message: str, location: Location) -> Finding:
    return _finding(
        "beta1.tensor_output_not_written_to",
        message,
        "what a kernel returns, or gets to write to, is written",
        "look for a loop without trips, such as nl.affine_range(m // n) with m < n, and round up: math.ceil(m / n)",
        location,
    )


def _finding(code: str, message: str, rule: str, fix: str, location: Location) -> Finding:
    return Finding(code, "error", message, rule, DOCUMENT, fix, location, {})
