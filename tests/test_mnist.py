"""The paper's setting on real data, at a size that takes minutes: `make test-slow`."""

import os
from pathlib import Path

import pytest

import tacit

FOLDER = Path(os.environ.get("TACIT_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.skipif(not (FOLDER / "MNIST" / "raw").is_dir(), reason=f"MNIST is not in {FOLDER}; set TACIT_DATA")
def test_ten_agents_with_one_digit_each_learn_all_ten():
    """DP-DSGT at the noise of ε=1 after 2,000 rounds; 30 of them, in larger steps. Chance is 10 %."""
    mnist = tacit.data.load("mnist", FOLDER)
    result = tacit.train(
        tacit.DSGT(),
        model=lambda: tacit.models.convnet(mnist.input_shape, 10),
        data=mnist.split(10, tacit.data.ByClass(t=1.0)),
        graph=tacit.graphs.complete(10),
        privacy=tacit.Privacy(noise_multiplier=7.19, delta=1e-5, clip=10.0, lot_size=256),
        rounds=30,
        lr=tacit.LogSpaced(0.1, 0.02),
        evaluate_every=30,
    )
    assert result.accuracy.min() > 0.6
    assert max(guarantee.epsilon for guarantee in result.guarantees()) < 0.25
