"""The projections after latent attention against the reference and against what is not quantized, and refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.mla.deepseek import mla_vupmx_oproj_cte_kernel, packed_reference
from nkilib.experimental.mla.deepseek.mla_vup_oproj_cte_reference import mla_vupmx_oproj_cte_kernel_reference
from tests.nkilib.mla import close, normal, packed, same_in_frameworks


@pytest.fixture(autouse=True)
def _trn3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def call(batch: int, tokens: int, heads: int, columns: int) -> dict[str, Any]:
    up, project = packed(heads * 512, 128), packed(heads * 128, columns)
    return {
        "out_attn_hbm": normal(batch, tokens, heads * 512),
        "wuv_qtz_hbm": up[0],
        "wuv_scale_hbm": up[1],
        "wo_qtz_hbm": project[0],
        "wo_scale_hbm": project[1],
    }


@settings(max_examples=3, deadline=None)
@given(
    batch=st.sampled_from([1, 2]),
    tokens=st.sampled_from([1, 127, 129, 513]),
    heads=st.sampled_from([4, 20]),
    columns=st.sampled_from([1, 127, 513, 640]),
    cores=st.sampled_from([1, 2]),
)
def test_any_size(batch: int, tokens: int, heads: int, columns: int, cores: int) -> None:
    arguments = call(batch, tokens, heads, columns)
    made = nki.simulate(mla_vupmx_oproj_cte_kernel)[cores](**arguments)
    close(made, mla_vupmx_oproj_cte_kernel_reference(**arguments), 3e-2)  # a value at a tie is rounded the other way


def test_near_what_is_not_quantized() -> None:
    arguments = call(1, 40, 4, 200)
    latents = arguments["out_attn_hbm"].astype(np.float64).reshape(1, 40, 4, 4, 128).swapaxes(-1, -2)
    up = packed_reference.weights(arguments["wuv_qtz_hbm"], arguments["wuv_scale_hbm"]).reshape(4, 512, 128)
    values = np.einsum("bshl,hld->bshd", latents.reshape(1, 40, 4, 512), up).reshape(1, 40, 512)
    exact = values @ packed_reference.weights(arguments["wo_qtz_hbm"], arguments["wo_scale_hbm"])
    close(mla_vupmx_oproj_cte_kernel(**arguments), exact, 0.25)  # 4 bits of each number, twice


def test_frameworks() -> None:
    same_in_frameworks(mla_vupmx_oproj_cte_kernel, call(1, 6, 4, 128))


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"out_attn_hbm": normal(1, 4, 512)}, "nkilib.shape", "H \\* L is 512"),
        ({"out_attn_hbm": normal(1, 4, 4096)}, "nkilib.shape", "dimension 0 of wuv_qtz_hbm is 512, not 1024"),
        ({"out_attn_hbm": np.zeros((1, 4, 2048), np.float32)}, "nkilib.dtype", "out_attn_hbm is float32"),
        ({"wuv_scale_hbm": np.zeros((16, 2), np.uint8)}, "nkilib.shape", "dimension 1 of wuv_scale_hbm is 2, not 1"),
        ({"wo_scale_hbm": np.zeros((4, 2), np.int8)}, "nkilib.dtype", "wo_scale_hbm is int8"),
        ({"wo_qtz_hbm": np.zeros((256, 200), np.uint32)}, "nkilib.shape", "dimension 0 of wo_qtz_hbm is 256, not 128"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(mla_vupmx_oproj_cte_kernel)(**call(1, 4, 4, 200) | changed)
    assert caught.value.code == code


def test_an_older_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(KernelLimit, match="NeuronCore-v3"):
        nki.simulate(mla_vupmx_oproj_cte_kernel)(**call(1, 4, 4, 128))
