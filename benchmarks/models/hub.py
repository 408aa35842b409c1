"""Models of the package `transformers` with random weights, where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch


def available() -> bool:
    """Whether the package can be imported."""
    return find_spec("transformers") is not None


Made = tuple[Any, tuple[torch.Tensor, ...]]


def _logits(model: torch.nn.Module, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(**{name: x}).logits
        return found

    return call


def gpt2(dtype: torch.dtype) -> Made:
    """Two layers of GPT-2."""
    hub = import_module("transformers")
    config = hub.GPT2Config(vocab_size=96, n_positions=32, n_embd=64, n_layer=2, n_head=4, use_cache=False)
    return _logits(hub.GPT2LMHeadModel(config).to(dtype).eval(), "input_ids"), (torch.randint(0, 96, (1, 16)),)


def llama(dtype: torch.dtype) -> Made:
    """Two layers of Llama."""
    hub = import_module("transformers")
    config = hub.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, use_cache=False,
    )  # fmt: skip
    return _logits(hub.LlamaForCausalLM(config).to(dtype).eval(), "input_ids"), (torch.randint(0, 96, (1, 16)),)


def vit(dtype: torch.dtype) -> Made:
    """Two layers of a vision transformer."""
    hub = import_module("transformers")
    config = hub.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8,
        num_labels=10,
    )  # fmt: skip
    return _logits(hub.ViTForImageClassification(config).to(dtype).eval(), "pixel_values"), (
        torch.randn(1, 3, 32, 32).to(dtype),
    )


MODELS: Mapping[str, Callable[[torch.dtype], Made]] = {
    "gpt2 (transformers)": gpt2,
    "llama (transformers)": llama,
    "vit (transformers)": vit,
}
