"""What is refused or warned about before a session begins: units that are protected less than it seems, and masks that would not cancel."""

import logging

from tacit.errors import PrivacyError
from tacit.privacy import Privacy, Secret
from tacit.training.runtimes import Hosted
from tacit.training.settings import Training

log = logging.getLogger(__name__)


def check_masks_are_shared(training: Training, hosted: Hosted) -> None:
    """Refuse masks whose two ends would be drawn under different keys: they would not cancel."""
    apart = len(hosted.agents) < hosted.total
    if apart and training.cancelling is not None and isinstance(training.chosen_sources, Secret):
        raise PrivacyError(
            f"{len(hosted.agents)} of {hosted.total} agents are hosted here, and every process with secret sources draws "
            "keys of its own, so masks would not cancel between processes. Host all agents in one process, use sources=Seeded(seed), "
            "which is not a release, or leave out noise=Cancelling(...)"
        )


def warn_of_units(training: Training) -> None:
    """Warn where ε covers less than one might think: a unit at several agents, or several records of one unit."""
    data = training.data.dataset
    if training.unit is not None and training.cancelling is None and training.data.local_units:
        log.warning(
            "each agent numbers its %ss by itself, so one may be at several agents. ε then covers what a single agent holds of a %s; over several agents it is "
            "higher, at most the sum",
            *[training.unit.name] * 2,
        )
    if training.unit is not None and training.cancelling is not None and training.data.local_units:
        log.warning(
            "each agent numbers its %ss by itself, so one may be at several agents. Masks protect such a %s less than ε says: what changes "
            "at several agents at once shows where masks cancel. Leave noise=Cancelling(...) out unless every %s is at one agent",
            *[training.unit.name] * 3,
        )
    if training.unit is None and isinstance(training.privacy, Privacy) and data.train.units is not None:
        log.warning(
            "%s says whose each record is, but every record is protected by itself: for someone with several records, ε is higher. Give "
            "unit=Unit(name, most=...), or --unit NAME:MOST, to protect them",
            data.name,
        )
