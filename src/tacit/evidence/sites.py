"""Whether the folder of one site among peers agrees with the agreement that all members signed, and with its own events.

The agreement is in the folder as canonical JSON. Its hash is the identity of the run, and the plan has it too; if another member states the
same hash, both hold the same agreement.
"""

from collections.abc import Iterator
from typing import Any

from tacit.errors import InvalidInput, TacitError
from tacit.evidence.run_evidence import RunEvidence, short
from tacit.io import chains
from tacit.runs.config import RunConfig
from tacit.runs.event_types import NoticeEvent, SiteView

_A_SITES_OWN = {"dataset", "data_dir", "split", "code"}


def check_site(run: RunEvidence) -> Iterator[str]:
    """Yield where settings, plan or links of a site are not those of the agreement; a run of one process has none."""
    site = run.plan.site
    if site is None:
        if run.agreement is not None:
            yield "the folder has an agreement, but the plan is not that of one site among peers"
        return
    yield from _check_links(run, site)
    if run.agreement is None:
        yield "the agreement that the plan names is missing"
        return
    try:
        if chains.digest(chains.canonical(run.agreement)) != site.agreement:
            yield f"the agreement is not the one that the plan names, {site.agreement[:16]}…"
            return
        yield from _check_agreement(run, site, run.agreement)
    except (TacitError, LookupError, TypeError, AttributeError, ValueError) as error:
        yield f"the agreement cannot be read: {error}"


def read_agreement(content: bytes) -> dict[str, Any]:
    """Read the agreement in a folder or an archive."""
    try:
        found = chains.parse(content)
    except ValueError as error:
        raise InvalidInput(f"agreement.json is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput("agreement.json is not an agreement")
    return found


def _check_agreement(run: RunEvidence, site: SiteView, agreed: dict[str, Any]) -> Iterator[str]:
    members, plan = agreed["members"], run.plan
    names = tuple(member["name"] for member in members)
    if names != site.members:
        yield f"the members are {short(site.members)} in the plan, but {short(names)} in the agreement"
        return
    name = names[site.agent]
    pairs = [{link["dials"], link["to"]} for link in agreed["links"]]
    neighbors = tuple(number for number, other in enumerate(names) if {name, other} in pairs and other != name)
    if neighbors != site.neighbors:
        yield f"the neighbours of {name!r} are {short(site.neighbors)} in the plan, but {short(neighbors)} in the agreement"
    if plan.sizes != (members[site.agent]["records"],):
        yield f"{name!r} declares {members[site.agent]['records']} records in the agreement, but the plan has {short(plan.sizes)}"
    if plan.schema != agreed["data"]["schema"]:
        yield "the plan and the agreement declare different schemas of records"
    settings = {**agreed["settings"], "agents": len(names), "step_agents": 1, "compile": False}
    if settings.get("graph") == "links":
        settings["graph"] = "ring"  # the links are listed, and settings need some name
    expected, kept = RunConfig.of(settings).model_dump(), run.config.model_dump()
    for key, value in expected.items():
        if key not in _A_SITES_OWN and kept.get(key) != value:
            yield f"{key} is {short(kept.get(key))} in the settings, but {short(value)} in the agreement"


def _check_links(run: RunEvidence, site: SiteView) -> Iterator[str]:
    for event in run.events.links.values():
        if strange := sorted({*event.used, *event.skipped} - set(site.neighbors)):
            yield f"the links of round {event.round} lead to agent {strange[0]}, who is not a neighbour"
        if not 1 <= event.round <= run.plan.total_rounds:
            yield f"links are noted for round {event.round} of {run.plan.total_rounds}"
    for snapshot in run.events.snapshots:
        if 0 < snapshot.round < run.plan.total_rounds and snapshot.round not in run.events.links:
            yield f"the model was scored after round {snapshot.round}, but the links of that round are not in the events"
    was_away = any(isinstance(event, NoticeEvent) and event.kind == "away" for event in run.events)
    if run.events.finish is not None and run.plan.total_rounds not in run.events.links and not was_away:
        yield f"the run is finished, but the links of its last round, {run.plan.total_rounds}, are not in the events"
