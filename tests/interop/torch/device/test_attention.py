"""Attention on the device is one operator with a derivative, as DTensor and context parallelism want it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from nki.interop.torch import enable_device, forget, on_device_counts, provenance

_FUSED = "aten::_scaled_dot_product_flash_attention_for_cpu"


def test_attention_and_its_derivative_are_operators_of_the_device() -> None:
    enable_device()
    made = torch.Generator().manual_seed(0)
    shapes = (2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8), (2, 4, 5, 8)
    *inputs, gradient = (torch.randn(shape, generator=made) for shape in shapes)
    own = [each.to("neuron").requires_grad_() for each in inputs]
    forget()
    found = scaled_dot_product_attention(*own, is_causal=True, scale=-0.3, enable_gqa=True)
    found.backward(gradient.to("neuron"))
    counts = on_device_counts()
    assert counts[_FUSED] == counts[f"{_FUSED}_backward"] == 1 and provenance() == {}
    wanted = [each.clone().requires_grad_() for each in inputs]
    with sdpa_kernel(SDPBackend.MATH):
        result = scaled_dot_product_attention(*wanted, is_causal=True, scale=-0.3, enable_gqa=True)
    result.backward(gradient)
    torch.testing.assert_close(found.cpu(), result)
    for one, other in zip(own, wanted, strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad)
    q, k, v = (each[:, :2].contiguous() for each in own)
    sums = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[1]
    torch.testing.assert_close(sums.cpu(), (q.cpu() @ k.cpu().mT / 8**0.5).logsumexp(-1))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, for forward derivatives
def test_what_the_fused_operator_cannot_do_is_made_of_others() -> None:
    enable_device()
    inputs = [torch.randn(1, 1, 4, 8) for _ in range(3)]
    own = [each.to("neuron") for each in inputs]
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    wanted = scaled_dot_product_attention(*inputs, is_causal=True)
    forget()
    torch.testing.assert_close(scaled_dot_product_attention(*own, attn_mask=mask.to("neuron")).cpu(), wanted)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(scaled_dot_product_attention(*own, is_causal=True).cpu(), wanted)
    moved = torch.func.jvp(lambda q: scaled_dot_product_attention(q, *own[1:], is_causal=True), (own[0],), (own[0],))[0]
    torch.testing.assert_close(moved.cpu(), wanted)
    assert _FUSED not in on_device_counts()
