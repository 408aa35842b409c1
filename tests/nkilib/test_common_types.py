"""Options that several kernels share: what they answer about themselves, and that kernels take them as arguments."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib.core.utils.common_types import HiddenLayout, NormType, QKNormConfig, QuantizationType, RouterActFnType


def test_kinds_of_quantization():
    assert [each for each in QuantizationType if each.is_mx()] == [
        QuantizationType.MX,
        QuantizationType.STATIC_MX,
        QuantizationType.ROW_MX,
    ]
    assert QuantizationType.STATIC_MX.is_logical_static() and not QuantizationType.ROW.is_logical_static()
    assert QuantizationType.ROW.is_logical_row() and not QuantizationType.MX.is_logical_row()


def test_places_of_dimensions():
    for layout in HiddenLayout:
        assert layout.name.split("_")[layout.get_t_dim()] == "T"
        assert layout.name.split("_")[layout.get_h1_dim()] == "H1"
    assert str(RouterActFnType.NOAUX_TC) == "noaux_tc"


@nki.jit
def scaled(x, norm: NormType, heads: QKNormConfig):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    gamma = nl.ndarray(heads.q_gamma_norm_weights.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=gamma, src=heads.q_gamma_norm_weights)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(norm.value), op1=nl.add, operand1=gamma)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize("norm", [NormType.RMS_NORM, NormType.LAYER_NORM])
def test_kernels_take_them_as_arguments(norm):
    x, gamma = np.ones((2, 5), np.float32), np.array([[3.0], [4.0]], np.float32)
    found = scaled(x, norm, QKNormConfig(q_gamma_norm_weights=gamma))
    assert np.array_equal(found, x * norm.value + gamma)
