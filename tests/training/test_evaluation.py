"""Scores are means over records, whichever way models are called."""

import numpy as np
import pytest
import torch

from tacit.data import Records
from tacit.models import FlatModel, convnet, mlp
from tacit.training import evaluation


@pytest.mark.parametrize("classification", [True, False])
@pytest.mark.parametrize("small", [0, 10**9])
def test_scores_are_those_of_every_model_by_itself(monkeypatch, small, classification):
    """More models than are called at once, and more records; one by one, and many at once."""
    monkeypatch.setattr(evaluation, "_SMALL_MODEL", small)
    monkeypatch.setattr(evaluation, "_MODELS_AT_ONCE", 3)
    monkeypatch.setattr(evaluation, "_RECORDS_AT_ONCE", 4)
    torch.manual_seed(0)
    model = FlatModel(mlp((5,), 3, hidden=(4,)))
    theta = torch.randn(7, model.size)
    records = Records(torch.randn(10, 5), torch.randint(0, 3, (10,)))
    score = evaluation.evaluate(model, theta, records, lambda inputs: 2 * inputs, classification=classification)
    for agent in range(7):
        outputs = model.outputs(theta[agent], 2 * records.inputs)
        expected = torch.nn.functional.cross_entropy(outputs, records.targets)
        np.testing.assert_allclose(score.loss[agent], float(expected), rtol=1e-5)
        if classification:
            assert score.accuracy[agent] == float((outputs.argmax(1) == records.targets).double().mean())
    assert (score.accuracy is None) != classification


def test_images_are_scored_as_their_modules_do(monkeypatch):
    """Pooling is done in another way, which gives the same numbers."""
    torch.manual_seed(0)
    model = FlatModel(convnet((1, 10, 10), 3))
    theta = 0.3 * torch.randn(2, model.size)
    records = Records(torch.randn(600, 1, 10, 10), torch.randint(0, 3, (600,)))
    monkeypatch.setattr(torch, "max_pool2d", None)  # torch's own is not called
    score = evaluation.evaluate(model, theta, records, lambda inputs: inputs, classification=True, one_by_one=True)
    monkeypatch.undo()
    for agent in range(2):
        module = model.module(theta[agent])
        with torch.no_grad():
            outputs = torch.cat([module(part) for part in records.inputs.split(512)])
        losses = torch.nn.functional.cross_entropy(outputs, records.targets, reduction="none")
        assert score.loss[agent] == pytest.approx(float(losses.double().mean()), rel=1e-12)
        assert score.accuracy[agent] == float((outputs.argmax(1) == records.targets).double().mean())
