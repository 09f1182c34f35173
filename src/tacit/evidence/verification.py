"""Verifies an archive: every hash, the agreement of all files, every ε, the scores of the models, and the replay.

What is not in the archive cannot be verified, and consistent edits of everything in it are found only with an earlier head;
`verify` says so if none is given.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput, PrivacyError, TacitError
from tacit.evidence.archive import REQUIRED, Archive
from tacit.evidence.charge_checks import check_epsilons, check_queries, check_record, check_stated_epsilons
from tacit.evidence.file_checks import check_checkpoint, check_heads, check_summary
from tacit.evidence.outcomes import Verification, conclude
from tacit.evidence.plan_checks import check_settings
from tacit.evidence.rebuild import find_parts
from tacit.evidence.replay import check_code, replay_run
from tacit.evidence.run_evidence import RunEvidence
from tacit.evidence.scores import check_models, score_again
from tacit.evidence.signatures import Signature
from tacit.evidence.sites import check_site, read_agreement
from tacit.io import chains
from tacit.io.jsonl import split_lines
from tacit.models.hashing import models_sha256, read_models
from tacit.privacy import Guarantee, Ledger
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.log import START, Reader, read_row
from tacit.privacy.observers import EVERYBODY
from tacit.runs import events
from tacit.runs.environment import sha256_of
from tacit.runs.python_config import read_config
from tacit.ties import first_largest
from tacit.training.planning import LEAST_NOISE

_NOT_DERIVED = [Verification("ε", "not checked", "the record differs from the plan")]
_ONE_SITE = "what its neighbours sent is not in the archive of one site, so its part of the run cannot be played again by itself"


class Log:
    """The ledger's log in an archive, row by row: the ledger that follows from it, and every hash."""

    def __init__(self, content: bytes) -> None:
        self.reader = Reader(Ledger())
        self.hashes: list[str] = []
        self.rows: list[tuple[int | None, str | None]] = []
        """For each row, the account that it is about and the head of events that it holds."""
        lines, rest = split_lines(content)
        if rest:
            raise PrivacyError("the last row is not complete")
        previous = START
        for number, line in enumerate(lines, 1):
            try:
                digest = self._add(line.decode("ascii"))
            except (PrivacyError, ValueError) as error:
                raise PrivacyError(f"row {number}: {error}") from None
            previous = chains.link(previous, digest)
            self.hashes.append(previous)

    def _add(self, text: str) -> str:
        """Add a row, and return its digest."""
        if text.startswith('{"sealed":'):
            sealed = chains.parse(text)
            if set(sealed) != {"sealed"} or not chains.is_hash(sealed["sealed"]):
                raise PrivacyError("it is sealed with something that is not a digest")
            self.reader.skip()
            self.rows.append((None, None))
            return str(sealed["sealed"])
        row = read_row(text)
        self.reader.apply(row)
        self.rows.append((row.get("account"), row.get("events")))
        return chains.digest(text)


def verify(
    archive: Archive,
    *,
    head: str | None = None,
    signature: Signature | None = None,
    data_dir: Path | None = None,
    replay: bool = True,
    run_code: bool = False,
) -> list[Verification]:
    """Check all that can be checked of an archive, with an earlier head or a signed one if it is given.

    No code of the owner is run, unless `run_code`: then code that the settings name is imported, relative to the current folder.
    Verification stops at a part that is missing or cannot be read, since nothing after it could be trusted.
    """
    findings = [conclude("parts", archive.problems, f"{len(archive.parts)} parts are as the manifest lists them")]
    if any(name not in archive.parts for name in REQUIRED):
        return findings
    try:
        log = Log(archive.parts["ledger.jsonl"])
    except PrivacyError as error:
        return [*findings, Verification("ledger", "fails", str(error))]
    sealed = log.reader.sealed
    closed = f"; {sealed} are shown only as digests, and claimed to be about other records" if sealed else ""
    findings.append(Verification("ledger", "holds", f"{len(log.rows)} rows form a chain{closed}; head {_head(log)}"))
    try:
        run = _read_evidence(archive, log)
    except (TacitError, ValueError, TypeError, RecursionError) as error:
        return [*findings, Verification("files", "fails", str(error))]
    findings.append(Verification("events", "holds", f"{len(run.events)} lines form a chain; head {run.events.head}"))
    try:
        heads = "ledger, events and summary state the same heads"
        findings.append(conclude("heads", check_heads(run), heads))
        findings.append(_check_earlier_head(run, log, head, signature))
        settings = list(check_settings(run))
        findings.append(conclude("settings", settings, "the plan follows from the settings, field by field"))
        if run.plan.site is not None or run.agreement is not None:
            findings.append(conclude("site", check_site(run), _describe_site(run)))
        recorded = list(check_record(run))
        findings.append(conclude("record", recorded, "owners, q, clip, lot, σ, allowance and release are as planned"))
        words = f"{run.account.spent:,} of {run.account.allowed:,} on record" if run.account else ""
        findings.append(conclude("queries", check_queries(run), words))
        derived, misstated = _derive_epsilons(run, log) if not recorded else (_NOT_DERIVED, [])
        findings += derived
        summary = [*check_summary(run), *misstated]
        findings.append(conclude("summary", summary, _describe_summary(run, checked=derived is not _NOT_DERIVED)))
        saved = "it is the one in the events" if run.plan.site is None else "a site has none: its journal stays with it"
        findings.append(conclude("checkpoint", check_checkpoint(run), saved))
        theta, kept = _read_models(run, archive)
        findings.append(kept)
    except (TacitError, TypeError, ValueError, LookupError, ArithmeticError) as error:  # a summary can hold anything
        return [*findings, Verification("files", "fails", str(error))]
    parts = find_parts(run.config, run.plan, data_dir, run_code=run_code)
    findings += score_again(run, theta, parts)
    if run.plan.site is not None:
        findings.append(Verification("replay", "not checked", _ONE_SITE))
    elif settings:
        findings.append(Verification("replay", "not checked", "the settings differ from the plan"))
    else:
        findings += replay_run(run, theta, parts, play=replay)
    findings.append(_check_code(run, archive))
    return findings


def _head(log: Log) -> str:
    return log.hashes[-1] if log.hashes else START


def _read_evidence(archive: Archive, log: Log) -> RunEvidence:
    parts = archive.parts
    settings = tomllib.loads(parts["config.toml"].decode())
    lines, rest = split_lines(parts["events.jsonl"])
    if rest:
        raise InvalidInput("events.jsonl: the last line is not complete")
    read = events.read_lines(enumerate(lines, 1), "events.jsonl")
    if read.plan is None:
        raise InvalidInput("events.jsonl has no plan")
    summary = chains.parse(parts["summary.json"]) if "summary.json" in parts else None
    if summary is not None and not isinstance(summary, dict):
        raise InvalidInput("summary.json is not a summary")
    number = log.reader.number_of(archive.run)
    return RunEvidence(
        name=archive.run,
        config=read_config(settings),
        events=read,
        plan=read.plan,
        ledger=log.reader.ledger,
        account=None if number is None else log.reader.accounts[number],
        token=None if number is None else log.reader.tokens[number],
        anchors=() if number is None else tuple(log.reader.anchors.get(number, ())),
        rows=log.hashes,
        summary=summary,
        checkpoint=parts.get("checkpoint.safetensors"),
        agreement=read_agreement(parts["agreement.json"]) if "agreement.json" in parts else None,
    )


def _check_earlier_head(run: RunEvidence, log: Log, head: str | None, signature: Signature | None) -> Verification:
    """Look for an earlier head in the chains, and describe what it covers."""
    what = "earlier head"
    if signature is not None:
        return _check_signature(run, log, signature)
    if head is None:
        words = "none was given: someone who can write all files may have changed all of them consistently"
        return Verification(what, "not checked", words)
    if head in log.hashes:
        return Verification(what, "holds", _describe_coverage(run, log, log.hashes.index(head) + 1))
    if head in run.events.hashes:
        line = run.events.hashes.index(head) + 1
        return Verification(what, "holds", f"it covers the events up to line {line} of {len(run.events)}")
    return Verification(
        what, "fails", "it is neither in the ledger nor in the events: rows or lines before it were changed or removed"
    )


def _check_signature(run: RunEvidence, log: Log, signature: Signature) -> Verification:
    said, problems = signature.statement, []
    if not 1 <= said.ledger_rows <= len(log.hashes) or log.hashes[said.ledger_rows - 1] != said.ledger:
        problems.append("the signed head is not in the ledger: rows were changed or removed since")
    if said.run == run.name and said.events is not None:
        lines = said.events_lines or 0
        if not 1 <= lines <= len(run.events) or run.events.hashes[lines - 1] != said.events:
            problems.append("the signed head is not in the events: lines were changed or removed since")
        finish = run.events.finish
        if said.models_sha256 is not None and (finish is None or finish.models_sha256 != said.models_sha256):
            problems.append("the models are not those that were signed")
    by = f"signed on {signature.time} by {signature.public_key[:16]}…: "
    return conclude("earlier head", problems, by + ("" if problems else _describe_coverage(run, log, said.ledger_rows)))


def _describe_coverage(run: RunEvidence, log: Log, rows: int) -> str:
    """Describe how much of a run was on record when the ledger had this many rows."""
    number = log.reader.number_of(run.name)
    own = [place for place, (account, _) in enumerate(log.rows, 1) if account == number]
    anchors = [events for account, events in log.rows[:rows] if account == number and events is not None]
    lines = run.events.hashes.index(anchors[-1]) + 1 if anchors and anchors[-1] in run.events.hashes else 0
    before = sum(place <= rows for place in own)
    return f"it covers {before} of the {len(own)} rows of this run and {lines} of its {len(run.events)} events"


def _derive_epsilons(run: RunEvidence, log: Log) -> tuple[list[Verification], list[str]]:
    """Derive every ε of the run, and what all runs in the log spend together; also return where the summary states another ε."""
    plan, account = run.plan, run.account
    if not plan.private:
        return [Verification("ε", "holds", "the run has no privacy, and the ledger says so: ε = ∞")], []
    if account is None or not account.charged:
        return [Verification("ε", "holds", "there were no queries")], []
    least = min(
        line.mechanism.noise_multiplier for other in run.ledger.accounts for line in other.lines if line.private
    )
    if least < LEAST_NOISE:
        words = f"a run has σ = {least:g}; no run is accepted below {LEAST_NOISE:g}, which protects nothing"
        return [Verification("ε", "fails", words)], []
    terms: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}
    planned = plan.planned_observer
    kept = run.ledger.guarantees(plan.owners, run=run.name, **terms, observer=planned)
    worst = first_largest(guarantee.epsilon for guarantee in kept)
    against = ""  # a guarantee says against whom it holds
    if planned != EVERYBODY:
        _, everybody = account.largest_epsilon(**terms)
        against = f", and ε={format_epsilon(everybody)} against {EVERYBODY}"
    whose = f"highest of {len(kept)} owners: " if len(kept) > 1 else "owner: "
    words = f"{kept[worst]}{against}; {whose}{plan.owners[worst]}"
    found = conclude("ε", check_epsilons(run, kept), words)
    of_all: Sequence[Guarantee] = run.ledger.guarantees(plan.owners, **terms)
    most = of_all[first_largest(guarantee.epsilon for guarantee in of_all)]
    runs = {asked.account.run for owner in plan.owners for asked in run.ledger.accesses(owner)}
    said = "this is the only run on these records" if len(runs) == 1 else f"{len(runs)} runs on these records"
    if sealed := log.reader.sealed:
        said += f", if the {sealed} sealed rows are about other records, which digests cannot show"
    value = f", ε = {format_epsilon(most.epsilon)}" if len(runs) == 1 else f": {most}"
    if planned != EVERYBODY and len(runs) == 1:
        value += f", against {EVERYBODY}"
    misstated = list(check_stated_epsilons(run, kept))
    return [found, Verification("ε of all runs", "holds", said + value)], misstated


def _describe_site(run: RunEvidence) -> str:
    site, used = run.plan.site, run.events.links_used
    if site is None:
        return ""
    away = f" and took no part in {used['rounds_away']} rounds" if used["rounds_away"] else ""
    return (
        f"{site.members[site.agent]}, one of {len(site.members)} members under agreement {site.agreement[:16]}…, used "
        f"{used['links_used']} of {used['links_planned']} links{away}; settings, neighbours and declared records are those of the agreement"
    )


def _describe_summary(run: RunEvidence, *, checked: bool) -> str:
    if run.summary is not None and not checked:
        return "accuracies and bytes are those of the events; its ε was not checked"
    if run.summary is not None:
        return "accuracies, bytes and guarantee are those of the events, and its ε follows from the ledger"
    if run.events.finish is None:
        return "there is none: the run is not finished"
    return "there is none, although the events have an end: it was removed, or the run was killed before it wrote one"


def _read_models(run: RunEvidence, archive: Archive) -> tuple[Float[Tensor, "agents params"] | None, Verification]:
    what, finish, content = "models", run.events.finish, archive.parts.get("models.safetensors")
    if finish is None:
        there = "there are none" if content is None else "they are not in the events yet"
        return None, Verification(what, "not checked", f"{there}: the run is not finished")
    if content is None:
        return None, Verification(what, "fails", "the run is finished, but its models are missing")
    try:
        theta = read_models(content)
    except ValueError as error:
        return None, Verification(what, "fails", f"models.safetensors: {error}")
    if models_sha256(theta) != finish.models_sha256:
        return None, Verification(what, "fails", "they are not those of the events: the hash differs")
    problems = list(check_models(run, theta)) if run.events.snapshots else []
    count = f"{len(theta)} models" if len(theta) > 1 else "one model"
    words = f"{count} of {theta.shape[1]:,} parameters, with hash {finish.models_sha256}"
    fits = theta.shape == (run.plan.agents, run.plan.params)
    return (theta if fits else None), conclude(what, problems, words)


def _check_code(run: RunEvidence, archive: Archive) -> Verification:
    try:
        listed = chains.parse(archive.parts["code.json"])["files"]
        if not isinstance(listed, dict) or not all(map(chains.is_hash, listed.values())):
            raise ValueError("its files are not listed with their hashes")
    except (ValueError, LookupError, TypeError) as error:
        return Verification("code", "fails", f"code.json: {error}")
    return check_code(run, listed, sha256_of(listed))
