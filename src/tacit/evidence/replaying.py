"""Computing again what a run states: the scores of its final models on public records and, from its seeds, the models.

Nothing that an archive names is run or opened: only models, rules, data sets and graphs that come with the library. A data set is
used where it is at hand, in the folder of whoever verifies, and never downloaded.
"""

import math
from pathlib import Path

import networkx as nx
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit import models
from tacit.config import RunConfig
from tacit.data import AgentData, DataSet
from tacit.data.download import RemoteFile, data_folder, locate
from tacit.data.official import CIFAR10, CIFAR100, FASHION_MNIST, MNIST
from tacit.errors import InvalidInput, TacitError
from tacit.evaluation import evaluate
from tacit.evidence.agreement import Told
from tacit.evidence.findings import Finding, found
from tacit.graphs.topologies import KINDS
from tacit.models import FlatModel
from tacit.models.hashing import models_sha256
from tacit.networks import Topology
from tacit.networks.schedules import SCHEDULES
from tacit.privacy import Ledger
from tacit.runs.describe import edges_of
from tacit.runs.events import Machine
from tacit.runs.machines import code_sha256, machine_of
from tacit.runs.python_config import AnyConfig
from tacit.session import Session
from tacit.specs import load_dataset

SCORE_TOLERANCE = 1e-3
"""How far a mean loss, relative to itself, may be from one that other hardware computed; an accuracy by one record more."""
REPLAY_TOLERANCE = 1e-2
"""How far a replayed model may be from the one that was kept, relative to it, where the fingerprint is another."""

_RULES = ("sgd", "local", "dsgd", "dsgt", "dinno")
_FILES: dict[str, tuple[RemoteFile, ...]] = {
    "digits": (),
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "cifar10": (CIFAR10,),
    "cifar100": (CIFAR100,),
}
_MOST_SYNTHETIC = 10**7


class Missing(Exception):
    """Why something could not be computed again."""


def public_data(told: Told, data_dir: Path | None) -> DataSet:
    """Return the data set of a run, if it comes with the library or is at hand; else raise `Missing`."""
    name, _, records = told.config.dataset.partition(":")
    if name == "synthetic":
        if not records.isdecimal() or len(records) > 8 or int(records) > _MOST_SYNTHETIC:
            raise Missing(f"{told.config.dataset[:80]!r} is no synthetic data set of a reasonable size")
    elif name not in _FILES or records:
        raise Missing(f"the data set {told.config.dataset[:80]!r} is not one that comes with the library")
    else:
        folder = data_folder(data_dir)
        absent = [file.path for file in _FILES[name] if not _is_here(file, folder)]
        if absent:
            raise Missing(
                f"{absent[0]} of the data set {name!r} is not in {folder}; set TACIT_DATA, or give --data-dir"
            )
    try:
        return load_dataset(told.config.dataset, data_dir, told.config.seed)
    except TacitError as error:
        raise Missing(f"the data set could not be loaded: {error}") from None


def _is_here(file: RemoteFile, folder: Path) -> bool:
    return (folder / file.path).is_file() or all(locate(part, folder) is not None for part in file.layout)


def not_shipped(config: AnyConfig) -> str | None:
    """Say what of the settings is not part of the library, and so is not run; None if all of it is."""
    if not isinstance(config, RunConfig):
        return "what was given in Python"
    if config.model not in models.MODELS:
        return f"the model {config.model[:80]!r}"
    if config.algorithm not in _RULES:
        return f"the rule {config.algorithm[:80]!r}"
    if getattr(config, "loss", None) not in (None, "cross_entropy"):
        return "the loss"
    kind = config.graph.strip().partition(":")[0].replace("-", "_")
    if config.algorithm not in ("sgd", "local") and kind not in (*KINDS, "random", *SCHEDULES):
        return f"the graph {config.graph[:80]!r}"
    return None


def rescored(told: Told, theta: Float[Tensor, "agents params"] | None, data_dir: Path | None) -> list[Finding]:
    """Score the final models on the public records again, and hold that against what the last event tells."""
    what = "scores"
    if theta is None or not told.events.snapshots:
        return [Finding(what, "not checked", "there are no final models; the run is not finished")]
    strange = not_shipped(told.config)
    if strange is not None and not strange.startswith("the graph"):
        return [
            Finding(
                what, "not checked", f"{strange} is not part of the library, and nothing of the owner's is run here"
            )
        ]
    try:
        data = public_data(told, data_dir)
        model = _model(told, data, theta)
    except Missing as error:
        return [Finding(what, "not checked", f"the models were not scored again: {error}")]
    last, findings = told.events.snapshots[-1], []
    for kind, records in (("validation", data.validation), ("test", data.test)):
        if records is None:
            continue
        score = evaluate(model, theta, records, data.prepare, classification=data.classes is not None)
        mean = "" if score.accuracy is None else f"{np.nanmean(score.accuracy):.2%} right on average, "
        words = f"{mean}loss {np.mean(score.loss):.4g}, on all {len(records)} {kind} records"
        if kind == "test":
            findings.append(
                Finding("scores on test", "holds", f"{words}; the run states none, so this is for the record")
            )
            continue
        problems = []
        if last.scored != (len(records), len(records)):
            problems.append(
                f"the events state scores of {last.scored or 'no'} validation records, and there are {len(records)}"
            )
        if score.accuracy is not None and not _close(last.accuracy, score.accuracy, 1.5 / len(records), 0.0):
            problems.append(
                f"the events state accuracies of {_mean(last.accuracy)} on average, and the models have {mean[:-2]}"
            )
        if not _close(last.loss, score.loss, 1e-6, SCORE_TOLERANCE):
            problems.append(
                f"the events state losses of {_mean(last.loss, '.4g')} on average, and the models have {np.mean(score.loss):.4g}"
            )
        findings.append(found("scores on validation", problems, words))
    return findings


def _model(told: Told, data: DataSet, theta: Tensor) -> FlatModel:
    if data.classes is None:
        raise Missing("the data set has no classes")
    if theta.shape != (told.plan.agents, told.plan.params):
        raise Missing(
            f"the models are of shape {tuple(theta.shape)}, and the plan has {told.plan.agents} of {told.plan.params}"
        )
    try:
        model = FlatModel(models.build(told.config.model, data.input_shape, data.classes))
    except TacitError as error:
        raise Missing(f"the model could not be made: {error}") from None
    if model.size != theta.shape[1]:
        raise Missing(f"the model has {model.size} parameters and the final models have {theta.shape[1]}")
    return model


def _close(told: tuple[float, ...] | None, computed: "np.ndarray", absolute: float, relative: float) -> bool:
    return told is not None and np.allclose(
        np.array(told, dtype=float), computed, rtol=relative, atol=absolute, equal_nan=True
    )


def _mean(values: tuple[float, ...] | None, form: str = ".2%") -> str:
    return "nothing" if values is None else format(float(np.mean(values)), form)


def replayed(told: Told, theta: Float[Tensor, "agents params"] | None, data_dir: Path | None) -> Finding:
    """Play a seeded run again, and hold its models against those that were kept."""
    what, config, plan = "replay", told.config, told.plan
    if theta is None:
        return Finding(what, "not checked", "there are no final models; the run is not finished")
    if config.private and config.source == "secret":
        return Finding(what, "not checked", "lots and noise were secret, so that nobody can play the run again")
    strange = not_shipped(config)
    if strange and (not strange.startswith("the graph") or plan.weights is not None or plan.changing):
        return Finding(
            what, "not checked", f"{strange} is not part of the library, and nothing of the owner's is run here"
        )
    try:
        if config.device != "cpu":
            raise Missing(f"it was played on {config.device[:40]!r}, and here is a processor")
        data = _dealt(told, data_dir)
        graph = _graph(told, data.agents)
        assert isinstance(config, RunConfig)  # or there would be something strange
        training = config.training(name=told.name, ledger=Ledger(), data=data, graph=graph, compiled=plan.compiled)
        with Session(training) as session:
            if session.plan.noise_multipliers != plan.noise_multipliers and config.noise_multiplier is not None:
                raise Missing("the noise that follows from the settings is another")
            here = machine_of(session)
            while not session.finished:
                session.advance()
            again = session.results()[0].theta.detach().cpu()
    except Missing as error:
        return Finding(what, "not checked", f"the run was not played again: {error}")
    except TacitError as error:
        return Finding(what, "fails", f"the settings could not be played again: {error}")
    except Exception as error:  # whatever a compiler or a library says here is no fault of the run
        words = f"the run could not be played again here: {type(error).__name__}: {str(error)[:200]}"
        return Finding(what, "not checked", words)
    return _compared(told, theta, again, here)


def _compared(told: Told, theta: Tensor, again: Tensor, here: Machine) -> Finding:
    other = differences(told, here)
    if models_sha256(again) == models_sha256(theta):
        return Finding("replay", "holds", "played again from its seeds, it gives the same models to the bit")
    if not other:
        return Finding("replay", "fails", "played again on the same fingerprint, it gives other models")
    apart = _apart(theta, again)
    words = (
        f"played again, models are {apart:.2g} of their length apart; to the bit is not expected, since {other} differs"
    )
    if not apart <= REPLAY_TOLERANCE:
        return Finding("replay", "fails", f"{words}, but at most {REPLAY_TOLERANCE:g} is")
    return Finding("replay", "holds", f"{words}; at most {REPLAY_TOLERANCE:g} is")


def differences(told: Told, here: Machine) -> str:
    """Say in what the machines that a run was played on differ from this one; nothing where the fingerprint is the same."""
    played = [told.plan.machine, *(resume.machine for resume in told.events.resumes)]
    names = ("processor", "torch", "threads", "blocks", "device", "code")
    return ", ".join(name for name in names if any(getattr(each, name) != getattr(here, name) for each in played))


def _apart(theta: Tensor, again: Tensor) -> float:
    """Return the largest distance of an agent's two models, relative to the length of the one that was kept."""
    if theta.shape != again.shape:
        return math.inf
    lengths = torch.linalg.vector_norm(theta.double(), dim=1).clamp_min(1e-12)
    return float((torch.linalg.vector_norm(theta.double() - again.double(), dim=1) / lengths).max())


def _dealt(told: Told, data_dir: Path | None) -> AgentData:
    whole = public_data(told, data_dir)
    held = sum(told.plan.sizes)
    if held > 2 * len(whole.train) + 1000 * told.plan.agents or told.config.agents > len(whole.train):
        raise Missing(f"the plan has {held} records and the data set {len(whole.train)}")
    assert isinstance(told.config, RunConfig)
    return told.config.model_copy(update={"data_dir": None if data_dir is None else str(data_dir)}).load_data()


def _graph(told: Told, agents: int) -> nx.Graph | Topology | None:
    """Return the graph of the settings or, where it came from a file, that of the plan."""
    if not_shipped(told.config) is not None:
        graph: nx.Graph = nx.Graph()
        graph.add_nodes_from(range(told.plan.agents))
        graph.add_edges_from(told.plan.edges)
        return graph
    if "restarts" in told.config.graph:
        raise Missing("its graph was searched for with a number of restarts of its own")
    assert isinstance(told.config, RunConfig)
    made = told.config.load_graph(agents)
    if edges_of(made, told.config.rounds) != told.plan.edges:
        raise InvalidInput("the graph of the settings has other links than the plan")
    return made


def code_finding(told: Told, files: dict[str, str], listed: str) -> Finding:
    """Say whether the code that played a run is the code that was listed, and the code that verifies."""
    played = {told.plan.machine.code, *(resume.machine.code for resume in told.events.resumes)}
    if played != {listed}:
        return Finding("code", "not checked", "the run was played by other code than the one that was exported with it")
    if listed == code_sha256():
        return Finding("code", "holds", f"the run was played by this very code ({len(files)} files)")
    return Finding(
        "code", "not checked", f"the run was played by other code than this; its {len(files)} files are listed by hash"
    )
