"""What a site needs before it takes part: its own records, checked against the agreement, and the agreement as the core takes it."""

from dataclasses import replace

import torch

from tacit import __version__
from tacit.data import AgentData, Schema
from tacit.data.schema import check_records
from tacit.errors import DataError, InvalidInput
from tacit.peer.agreement.document import Agreement
from tacit.peer.agreement.drafting import source_hashes
from tacit.peer.agreement.signed import Chain
from tacit.peer.agreement.terms import config_of, key_graph_of, topology_of
from tacit.peer.protocol.interface import PeerTerms
from tacit.peer.settings import SiteSettings
from tacit.privacy import Ledger
from tacit.runs.building import data_of_site, divide_data, model_for
from tacit.runs.config import RunConfig
from tacit.training.preparation import make_module
from tacit.training.settings import Training

_MOST_VECTORS = 16
_SMALLEST_CAP = 4 * 2**20


def config_of_site(agreement: Agreement, settings: SiteSettings) -> RunConfig:
    """Return the settings of the run with what a site adds: its data set and, if it has a part of that, how that is divided."""
    own = {"dataset": settings.dataset} | ({} if settings.part is None else {"split": settings.split})
    return config_of(agreement).model_copy(update=own)


def load_own_data(settings: SiteSettings, agreement: Agreement, agent: int) -> AgentData:
    """Return the records of this site, as those of one agent."""
    config = config_of_site(agreement, settings).model_copy(update={"data_dir": settings.data_dir})
    if settings.part is None:
        return data_of_site(config, agreement.members[agent].name)
    if settings.part >= len(agreement.members):
        raise InvalidInput(
            f"part is {settings.part}; the data is divided among {len(agreement.members)} members, from 0"
        )
    return divide_data(config).only([settings.part])


def check_own_data(data: AgentData, agreement: Agreement) -> AgentData:
    """Return the records under the agreement's schema; refuse those that do not fit it, and another kind of data set."""
    declared, dataset = agreement.data, data.dataset
    for name, found in (("input_shape", list(dataset.input_shape)), ("classes", dataset.classes)):
        if found != declared.get(name):
            raise DataError(f"{name} of {dataset.name} is {found}, and the agreement says {declared.get(name)}")
    checked = replace(data, dataset=replace(dataset, schema=Schema.of(declared["schema"])))
    check_records(checked, Schema.of(declared["schema"]))
    return checked


def check_code(agreement: Agreement) -> None:
    """Refuse another version of the software, or other source files of model, loss or rule, than the agreement states."""
    if agreement.software != __version__:
        raise InvalidInput(
            f"this is Tacit {__version__}, and the agreement is for {agreement.software}; install that version"
        )
    found = source_hashes(config_of(agreement))
    if changed := [key for key, sha256 in agreement.code.items() if found.get(key) != sha256]:
        raise InvalidInput(
            f"the source file of {changed[0]} {agreement.settings.get(changed[0], '')!r} is not the one in the agreement; use the file that was agreed on"
        )


def training_of_site(
    agreement: Agreement, data: AgentData, ledger: Ledger, *, evaluate_every: int | None = None
) -> Training:
    """Return what this site trains. Everything but its records is the agreement's."""
    config = config_of(agreement)
    training = config.training(
        name=agreement.run_name,
        ledger=ledger,
        data=data,
        graph=topology_of(agreement),
        key_graph=key_graph_of(agreement),
    )
    sizes = [member.records for member in agreement.members]
    return replace(training, sizes=sizes, evaluate_every=evaluate_every)


def parameters_of(agreement: Agreement, data: AgentData) -> tuple[int, torch.dtype]:
    """Return how many parameters the model has, and of which type."""
    config = config_of(agreement)
    parameters = list(make_module(model_for(config, data.dataset), config.seed).parameters())
    return sum(parameter.numel() for parameter in parameters), parameters[0].dtype


def peer_terms(chain: Chain, agent: int, parameters: int, dtype: torch.dtype, plan: bytes = b"") -> PeerTerms:
    """Return the agreement as the protocol core takes it; `plan` is the hash of what is planned for all members."""
    agreement, limits, config = chain.current, chain.current.limits, config_of(chain.current)
    return PeerTerms(
        run=bytes.fromhex(chain.run_id),
        agreement=bytes.fromhex(agreement.hash),
        version=agreement.version,
        earlier=tuple(bytes.fromhex(version.hash) for version in chain.versions[:-1]),
        plan=plan,
        document=chain.document,
        agent=agent,
        members=tuple(range(len(agreement.members))),
        neighbors=tuple(agreement.links_of(agent)),
        rounds=config.total_rounds,
        most_bytes=max(_SMALLEST_CAP, _MOST_VECTORS * parameters * dtype.itemsize),
        norm_bound=limits.most_norm,
        gone={
            number: member.gone_from for number, member in enumerate(agreement.members) if member.gone_from is not None
        },
        dtype=str(dtype).removeprefix("torch."),
        compute_seconds=limits.compute_seconds,
        least_bandwidth=limits.least_bandwidth,
        grace_seconds=limits.grace_seconds,
        resend_seconds=limits.resend_seconds,
        linger_seconds=limits.linger_seconds,
        fewest=limits.fewest_links,
    )
