"""`check`: the cheap detectors, run on one's own settings with made-up records, in about a minute."""

import time
from collections.abc import Callable

import torch

from tacit.algorithms.averaged import name_of
from tacit.audit.detectors import (
    CheckReport,
    influence_findings,
    lot_findings,
    made_up,
    noise_findings,
    read_lots,
    read_noise,
)
from tacit.errors import InvalidInput
from tacit.privacy import Privacy
from tacit.training.session import Session
from tacit.training.settings import Training

FALSE_ALARM = 1e-4


def check(
    training: Training, *, false_alarm: float = FALSE_ALARM, on_step: Callable[[str], None] = lambda _: None
) -> CheckReport:
    """Look for faults in what these settings make of privacy: model, loss, `prepare`, data shape, rule, engine, lots, noise.

    Records are made up in the shape of `training.data`; no training record is read, and nothing is charged. Sound settings
    fail with probability `false_alarm` at most. `on_step` is told what is being done.
    """
    if not isinstance(training, Training):
        raise InvalidInput(f"training is a {type(training).__name__}; give a Training(...)")
    if not isinstance(training.privacy, Privacy):
        raise InvalidInput("a run without privacy promises nothing that could be checked")
    if not 0 < false_alarm < 1:
        raise InvalidInput(f"false_alarm is {false_alarm}; it must lie strictly between 0 and 1")
    started, half = time.perf_counter(), false_alarm / 2
    on_step("making records up")
    settings = made_up(training)
    with Session(settings) as session:
        on_step("one record's influence")
        found = influence_findings(session)
        plan, sizes = session.plan, session.sizes
        width, dtype = session.model.size, session.model.dtype
        about = (
            f"{name_of(training.algorithm)} · {plan.agents} agents · {width:,} parameters, {_named(dtype)} · gradients "
            f"{session.chosen.why}"
        )
    on_step("noise")
    found += noise_findings(read_noise(settings, plan, width, dtype), half)
    on_step("lots")
    found += lot_findings(read_lots(settings, plan, sizes), half)
    order = ("influence", "bits", "noise", "lots")
    findings = sorted(found, key=lambda each: order.index(each.part))
    return CheckReport(findings=tuple(findings), about=about, seconds=time.perf_counter() - started)


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
