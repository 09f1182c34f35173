"""`check`: run all cheap detectors on one's own settings with made-up records, in about a minute."""

import time
from collections.abc import Callable

import torch

from tacit.algorithms.averaged import line_of, name_of
from tacit.audit.detectors.bare_noise import read_noise
from tacit.audit.detectors.influence import check_influence
from tacit.audit.detectors.lots import check_lots, read_lots
from tacit.audit.detectors.made_up import use_made_up_records
from tacit.audit.detectors.noise import check_noise
from tacit.audit.detectors.report import CheckReport
from tacit.data import IID, AgentData, DataSet
from tacit.data.catalog import absent, find_published
from tacit.data.published import Published
from tacit.errors import InvalidInput
from tacit.privacy import Plan, Privacy
from tacit.registry import DATA_SETS
from tacit.runs.config import RunConfig
from tacit.training.session import Session
from tacit.training.settings import Training

FALSE_ALARM = 1e-4


def check(
    training: Training, *, false_alarm: float = FALSE_ALARM, on_step: Callable[[str], None] = lambda _: None
) -> CheckReport:
    """Look for privacy faults in these settings: model, loss, `prepare`, data shape, rule, engine, lots and noise.

    Records are made up in the shape of `training.data`; no training record is read and nothing is charged. Sound settings fail
    with probability `false_alarm` at most. `on_step` is called with the name of each step.
    """
    if not isinstance(training, Training):
        raise InvalidInput(f"training is a {type(training).__name__}; give a Training(...)")
    if not isinstance(training.privacy, Privacy):
        raise InvalidInput("a run without privacy has no guarantee to check")
    line = line_of(training.algorithm)
    if line is not None and line.votes:
        raise InvalidInput(
            f"{name_of(training.algorithm)} asks teachers for votes, but this checks clipped gradients, lots and the noise of their sums; "
            "`tacit audit votes` attacks votes"
        )
    if not 0 < false_alarm < 1:
        raise InvalidInput(f"false_alarm is {false_alarm}; it must lie strictly between 0 and 1")
    started, half = time.perf_counter(), false_alarm / 2
    on_step("making records up")
    settings = use_made_up_records(training)
    with Session(settings) as session:
        on_step("one record's influence")
        found = check_influence(session)
        plan, sizes = session.plan, session.sizes
        width, dtype = session.model.size, session.model.dtype
        kind = str(dtype).removeprefix("torch.")
        about = f"{name_of(training.algorithm)} · {plan.agents} agents · {width:,} parameters, {kind} · gradients {session.chosen.why}"
        about += _describe_noise(plan)
    on_step("noise")
    found += check_noise(read_noise(settings, plan, width, dtype), half)
    on_step("lots")
    found += check_lots(read_lots(settings, plan, sizes), half)
    order = ("influence", "bits", "noise", "lots")
    findings = tuple(sorted(found, key=lambda each: order.index(each.part)))
    return CheckReport(findings=findings, about=about, seconds=time.perf_counter() - started)


def _describe_noise(plan: Plan) -> str:
    """Name what is not plain noise of each agent's own, and whom it is tested against."""
    parts = ["discrete noise"] if plan.rounding is not None else []
    parts += [f"{len(plan.bands)} bands"] if plan.bands else []
    parts += [f"masks, as seen by {plan.observer}"] if plan.masks is not None else []
    return "".join(f" · {part}" for part in parts)


def training_of(config: RunConfig) -> tuple[Training, str]:
    """Return the training of a run file, and a text that says where the shape of its records comes from; nothing is downloaded."""
    if not config.private:
        raise InvalidInput("these settings have private = false, so there is nothing to check")
    if config.dataset not in DATA_SETS or absent(config.dataset, config.data_dir) is None:
        data, about = config.load_data(), f"records made up in the shape of {config.dataset}"
    else:
        data = _stand_in(find_published(config.dataset), config)
        about = f"records made up in the published shape of {config.dataset}, which is not here, in equal parts"
    graph = config.load_graph(data.agents)
    return config.training(name="check", ledger=None, data=data, graph=graph), about


def _stand_in(declared: Published, config: RunConfig) -> AgentData:
    """Return a table of blank records that share one record's memory."""
    blank = torch.zeros(1, *declared.shape, dtype=torch.uint8).expand(declared.records, *declared.shape)
    targets = torch.arange(declared.records) % declared.classes
    table = DataSet.from_records(name=config.dataset, train=(blank, targets), classes=declared.classes)
    data = table.split(config.agents, IID(), seed=config.seed)
    return data.pooled() if config.is_pooled else data
