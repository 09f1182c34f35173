"""The scores of a run's final models, recomputed on public records, and how far the models are apart."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from torch import Tensor

from tacit.errors import TacitError
from tacit.evidence.outcomes import Verification, conclude
from tacit.evidence.rebuild import Missing, Parts
from tacit.evidence.run_evidence import RunEvidence
from tacit.models import FlatModel
from tacit.runs.checkpoint import Checkpoint
from tacit.training.evaluation import Score, consensus_distance, evaluate
from tacit.training.preparation import make_module

SCORE_TOLERANCE = 1e-3
"""How far a mean loss or a distance may differ, relatively, between machines; accuracies may differ by one record."""

Models = Float[Tensor, "agents params"]


def check_models(run: RunEvidence, theta: Models) -> Iterator[str]:
    """Yield where the final models differ from the last snapshot and the last checkpoint."""
    plan, last = run.plan, run.events.snapshots[-1]
    if theta.shape != (plan.agents, plan.params):
        yield f"they are of shape {tuple(theta.shape)}, but the plan has {plan.agents} of {plan.params} parameters"
        return
    # A site has only its own model, and states no distance from the others.
    apart = float(consensus_distance(theta[None])[0]) if plan.site is None else np.nan
    close = np.isclose(last.consensus_distance, apart, rtol=SCORE_TOLERANCE, atol=1e-6, equal_nan=True)
    if (np.isfinite(apart) or plan.site is not None) and not close:
        yield f"they are {apart:.4g} apart, but the last snapshot states {last.consensus_distance:.4g}"
    if run.checkpoint is not None:
        saved = Checkpoint.of(run.checkpoint, "the checkpoint").tensors
        held = [tensor for name, tensor in saved.items() if name.startswith("state") and tensor.shape == theta.shape]
        if int(saved["round"]) == plan.total_rounds and not any(same_numbers(tensor, theta) for tensor in held):
            yield "the checkpoint after the last round holds different models"


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors are equal, with NaN in the same places."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def score_again(run: RunEvidence, theta: Models | None, parts: Parts) -> list[Verification]:
    """Score the final models again on the public records, and compare with the last snapshot."""
    if theta is None or not run.events.snapshots:
        return [Verification("scores", "not checked", "there are no final models; the run is not finished")]
    try:
        data = parts.data()
        if (ballot := run.plan.ballot) is not None:
            data = data.with_pool(ballot.records)
        model = FlatModel(make_module(parts.model(), run.config.seed), parts.loss())
        if model.size != theta.shape[1]:
            raise Missing(f"the model has {model.size} parameters and the final models have {theta.shape[1]}")
    except Missing as error:
        return [Verification("scores", "not checked", f"the models were not scored again: {error}")]
    except TacitError as error:
        return [Verification("scores", "fails", f"the models could not be scored again: {error}")]
    except Exception as error:  # from settings or code of the owner, which can be anything
        words = f"the models could not be scored again: {type(error).__name__}: {str(error)[:200]}"
        return [Verification("scores", "not checked", words)]
    findings = []
    for kind, records in (("validation", data.validation), ("test", data.test)):
        if records is None:
            continue
        score = evaluate(model, theta, records, data.prepare, classification=data.classes is not None)
        right = "" if score.accuracy is None else f"{np.nanmean(score.accuracy):.2%} right on average, "
        words = f"{right}loss {np.mean(score.loss):.4g}, on all {len(records)} {kind} records"
        if kind == "validation":
            findings.append(conclude("scores on validation", _check_scores(run, score, len(records)), words))
        else:
            words += "; the run states none to compare with"
            findings.append(Verification("scores on test", "shown", words))
    return findings or [Verification("scores", "not checked", "the data set has no public records to score models on")]


def _check_scores(run: RunEvidence, score: Score, records: int) -> Iterator[str]:
    last = run.events.snapshots[-1]
    if last.scored != (records, records):
        yield f"the events state scores of {last.scored or 'no'} validation records, but there are {records}"
    if score.accuracy is not None and not _is_close(last.accuracy, score.accuracy, 1.5 / records, 0.0):
        stated, true = _mean(last.accuracy), f"{np.nanmean(score.accuracy):.2%}"
        yield f"the events state accuracies of {stated} on average, but the models have {true}"
    if not _is_close(last.loss, score.loss, 1e-6, SCORE_TOLERANCE):
        stated, true = _mean(last.loss, ".4g"), f"{np.mean(score.loss):.4g}"
        yield f"the events state losses of {stated} on average, but the models have {true}"


def _is_close(stated: tuple[float, ...] | None, computed: "np.ndarray", absolute: float, relative: float) -> bool:
    kept = np.where(np.isfinite(computed), computed, np.nan)  # events write whatever is not finite as NaN
    return stated is not None and np.allclose(
        np.array(stated, dtype=float), kept, rtol=relative, atol=absolute, equal_nan=True
    )


def _mean(values: tuple[float, ...] | None, form: str = ".2%") -> str:
    return "nothing" if values is None else format(float(np.mean(values)), form)
