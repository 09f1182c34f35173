"""Whole sites with keys, folders and a signed agreement, run over real links in one event loop."""

import asyncio

import torch
from safetensors.torch import load_file

import tacit
from tacit.peer.agreement.document import version_file
from tacit.peer.agreement.drafting import add_member, connect_members, draft_agreement
from tacit.peer.agreement.signed import save_signature, sign_agreement
from tacit.peer.agreement.terms import config_of, topology_of
from tacit.peer.identity import Identity
from tacit.peer.service import Service
from tacit.peer.settings import SiteSettings
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder
from tests.peer.consortia import NAMES
from tests.peer.wires import free_address

SETTINGS = {
    "dataset": "digits",
    "split": "iid",
    "graph": "ring",
    "noise_multiplier": 2.0,
    "lot_size": 16.0,
    "rounds": 4,
    "lr": 1.0,
    "source": "seeded",
}
LIMITS = {"grace_seconds": 1.0, "resend_seconds": 0.3, "linger_seconds": 20.0}


class Consortium:
    """Sites with keys, folders and a signed agreement, as `tacit peer` commands would make them.

    The data set is divided among them; with `whole`, each has all of its records.
    """

    def __init__(
        self, folder, count, *, pairs=None, status=False, addresses=None, limits=LIMITS, whole=False, **settings
    ):
        given = {**SETTINGS, "agents": count, **settings}
        config = RunConfig.of({key: value for key, value in given.items() if value is not None})
        data = config.load_data()
        self.config, self.data, self.folder = config, data, folder
        sizes = [len(data.dataset.train)] * count if whole else data.sizes
        addresses = addresses or [free_address() for _ in range(count)]
        self.identities = [
            Identity.create(folder / name, name, address=address)
            for name, address in zip(NAMES, addresses, strict=False)
        ]
        if pairs is not None:
            config = config.model_copy(update={"graph": "links"})
        agreement = draft_agreement(
            config,
            data.dataset,
            title="trial",
            first=self.identities[0].card,
            records=sizes[0],
            days=1,
            limits=limits,
        )
        for identity, records in zip(self.identities[1:], sizes[1:], strict=True):
            agreement = add_member(agreement, identity.card, records)
        self.agreement = connect_members(agreement, pairs)
        self.sign(self.agreement, self.identities, self.identities)
        for number, identity in enumerate(self.identities):
            page = free_address() if status else ""
            own = {} if whole else {"split": "iid", "part": number}
            SiteSettings(dataset="digits", status=page, **own).save(folder / identity.name)

    def sign(self, agreement, signers, holders):
        for holder in holders:
            path = version_file(self.folder / holder.name, agreement.version)
            agreement.save(path)
            for signer in signers:
                save_signature(sign_agreement(agreement, signer), path)

    def service(self, number):
        return Service(self.folder / NAMES[number])

    def run_folder(self, number):
        return RunFolder(self.folder / NAMES[number] / "runs" / self.agreement.run_name)

    def theta(self):
        rows = [load_file(self.run_folder(number).models_file)["theta"] for number in range(len(self.identities))]
        return torch.cat(rows)

    def theta_in_one_process(self):
        """Return the models of the same training with all agents in one process."""
        config = config_of(self.agreement)
        training = config.training(name="one", ledger=None, data=self.data, graph=topology_of(self.agreement))
        with tacit.Session(training) as session:
            while not session.finished:
                session.advance()
            return session.results()[0].theta


def play(*services, seconds=60, meanwhile=None):
    """Run services in one event loop, and return how each ended."""

    async def main():
        made = [make() for make in services]
        tasks = [asyncio.create_task(service.run()) for service in made]
        try:
            async with asyncio.timeout(seconds):
                if meanwhile is not None:
                    while not all(hasattr(service, "status") for service in made):  # they have begun
                        await asyncio.sleep(0.01)
                    await meanwhile(made)
                return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(main())


def play_all(consortium, **options):
    numbers = range(len(consortium.identities))
    return play(*(lambda number=number: consortium.service(number) for number in numbers), **options)


def stop_at(round):
    """Return what stops every site at the end of a round, the same for all, so that no link is skipped."""

    async def stop(services):
        for service in services:
            service._observing._on_round = lambda service=service: service.status.round >= round and service.stop()
        while not all(service._stopping.is_set() for service in services):
            await asyncio.sleep(0.01)

    return stop
