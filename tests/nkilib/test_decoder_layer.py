"""A decoder layer of functions of the library, in a small size, against PyTorch in float32."""

import pytest
from benchmarks.library.decoder_layer import LAYERS, Sizes, errors


@pytest.mark.parametrize("phase", LAYERS)
def test_the_layer_by_hand_is_as_exact_as_that_of_torch(phase: str) -> None:
    by_hand, framework = errors(Sizes(256, 4, 2, 130, 129, 260), phase)
    assert 0 < by_hand < 1.5 * framework + 2.0**-8
