"""What tests of training share."""

import pytest
from small_training import AGENTS

import tacit


@pytest.fixture(scope="module")
def data():
    return tacit.data.load("digits").split(AGENTS, tacit.data.ByClass(t=0.5), seed=0)
