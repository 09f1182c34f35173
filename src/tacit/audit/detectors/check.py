"""`check`: run all cheap detectors on one's own settings with made-up records, in about a minute."""

import time
from collections.abc import Callable

from tacit.algorithms.averaged import name_of
from tacit.audit.detectors.influence import check_influence
from tacit.audit.detectors.lots import check_lots, read_lots
from tacit.audit.detectors.made_up import use_made_up_records
from tacit.audit.detectors.noise import check_noise, read_noise
from tacit.audit.detectors.report import CheckReport
from tacit.errors import InvalidInput
from tacit.privacy import Privacy
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
        raise InvalidInput("a run without privacy promises nothing that could be checked")
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
    on_step("noise")
    found += check_noise(read_noise(settings, plan, width, dtype), half)
    on_step("lots")
    found += check_lots(read_lots(settings, plan, sizes), half)
    order = ("influence", "bits", "noise", "lots")
    findings = tuple(sorted(found, key=lambda each: order.index(each.part)))
    return CheckReport(findings=findings, about=about, seconds=time.perf_counter() - started)
