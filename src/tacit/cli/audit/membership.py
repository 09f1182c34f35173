"""`tacit audit membership`: the paper's attack, which measures how low the final models' loss on a record is."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tacit.cli.audit import options as of
from tacit.cli.audit.base import AttackCase, BatchedAudit
from tacit.cli.audit.folder import Document
from tacit.cli.audit.neighbor import is_worth_compiling
from tacit.cli.audit.options import execution, system
from tacit.cli.terminal.command import NOT_RECORDED
from tacit.registry import DATA_SETS

_SEARCHED = "among those that were tried (0.003 to 1) the one that moves the loss on the record most"
_NOT_SEARCHED = "which was not searched for; others may leak more"


@dataclass(frozen=True, kw_only=True)
class MembershipAudit(BatchedAudit):
    """The paper's attack: do the final models reveal whether a blank image was trained on?

    Three agents hold 100 images of one class each.

    The paper played 5,000 runs on each side (--runs 5000). After the first batch, the time left is shown.

    After a stop, the same command with --folder resumes. Exit code 1 means that a claim is broken.

    Example: tacit audit membership --algorithm all --dataset digits --runs 200
    """

    kind: ClassVar[str] = "membership"
    algorithm: Annotated[
        of.AttackedRule, system("NAME", f"{', '.join(of.attacked_rules())}; or all: those of the paper in turn.")
    ] = "dsgd"
    dataset: Annotated[str, system("NAME", f"Images: {DATA_SETS.listed()}.")] = "mnist"
    data_dir: of.DataFolder = None
    runs: of.Runs = 500
    batch: of.Batch = 100
    compile: Annotated[
        Literal["auto", "true", "false"],
        execution("WHEN", "Compile gradients: auto (long audits), true, false."),
        NOT_RECORDED,
    ] = "auto"

    def cases(self) -> list[AttackCase]:
        """Return the attack on an algorithm, or on each of them."""
        from tacit.audit.attacks.membership import SETTINGS, paper_attack, settings_for
        from tacit.audit.bounds.findings import Claim
        from tacit.cli.audit.systems import describe_system
        from tacit.data import load

        data = load(self.dataset, self.data_dir)
        auto = self.compile == "auto" and is_worth_compiling(data, self.rounds, self.runs_each)
        terms = {name: getattr(self, name) for name in ("epsilon", "delta", "rounds", "lot_size")}
        cases = []
        for rule in SETTINGS if self.algorithm == "all" else (self.algorithm,):
            made = paper_attack(data, rule, **terms)
            attack = replace(made, world=replace(made.world, compile=auto or self.compile == "true"))
            central, held = attack.world.graph is None, attack.world.data.sizes
            _, clip, lr = settings_for(rule)
            description = describe_system(
                "Membership by loss",
                rule,
                agents=len(held),
                graph=None if central else "complete",
                rounds=self.rounds,
                on=self.dataset,
                dataset=f"{self.dataset}, {sum(held):,} images",
                target=0,
                queries=attack.event.count,
                saw=f"The attacker sees the final {'model' if central else 'models of all agents'} and nothing else, and measures the "
                "loss on the record. A low loss suggests that the record was learned.",
                record="The record is a blank image labelled 0. The paper states no step sizes for this attack. Here: "
                f"{lr}, {_SEARCHED if rule == 'dsgt' else _NOT_SEARCHED}; clipping norm {clip:g}.",
            )
            claim = Claim.of(attack.event, self.delta)
            settings = {"algorithm": rule}
            cases.append(AttackCase(attack=attack, claim=claim, settings=settings, description=description))
        return cases

    def show(self, document: Document, folder: Path | None) -> None:
        """Print one audit in full, or a line for each of several."""
        from tacit.cli.audit.printing import print_audits

        if folder is not None and "audits" in document:
            print_audits(list(document["audits"].values()), folder, self.confidence)
        else:
            super().show(document, folder)
