"""Four clinics with one CSV file each train one model together, under a budget that covers all their runs.

    python examples/own_data.py               # in a temporary folder
    python examples/own_data.py --folder here # keeps files and ledger; a second start hits the budget at once

The records are the 569 tumours of scikit-learn's breast cancer data (`pip install scikit-learn`), written to several files so that there is something to read. From
there on it is what you would do with your own files: a public model, graph and scaling constants, a ledger on disk with
a budget, two runs that fit the budget and a third that does not.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import tacit

CLINICS = ("north", "east", "south", "west")
FEATURES = 30
LINKS = "# agents 4\n0 1\n1 2\n2 3\n3 0\n0 2\n"  # a ring with one shortcut
BUDGET = tacit.Budget(epsilon=3.5, delta=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where files and ledger are kept")
    folder: Path | None = parser.parse_args().folder
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        study(folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        study(Path(temporary))


def study(folder: Path) -> None:
    screen = Console(highlight=False)
    write_files(folder)
    public, test = read(folder / "public.csv"), read(folder / "test.csv")
    mean, std = (
        public[0].mean(dim=0),
        public[0].std(dim=0),
    )  # of public records; measured on private records, they would leak
    clinics = tacit.data.AgentData.from_parts(
        [read(folder / f"{clinic}.csv") for clinic in CLINICS],
        name="tumours",
        owners=CLINICS,  # the ledger identifies a clinic by its name: keep it from run to run
        validation=public,
        test=test,
        classes=2,
        prepare=lambda inputs: (inputs - mean) / std,
    )
    screen.print(
        f"{clinics.agents} clinics with {', '.join(map(str, clinics.sizes))} records; ε may reach {BUDGET.epsilon:g}"
    )
    ledger = tacit.privacy.DurableLedger(folder / "ledger.sqlite", BUDGET)
    privacy = tacit.Privacy(epsilon=2.0, delta=BUDGET.delta, clip=1.0, lot_size=24)
    for rule, lr in ((tacit.DSGT(), 0.5), (tacit.DSGD(), 0.5), (tacit.DSGT(), 0.2)):
        try:
            result = tacit.train(
                rule,
                model=Net,
                data=clinics,
                graph=tacit.graphs.read_graph(folder / "links.txt"),
                privacy=privacy,
                ledger=ledger,
                rounds=60,
                lr=tacit.LogSpaced(lr, lr / 10),
            )
        except tacit.TacitError as refused:
            screen.print(f"refused: {refused}", style="bold")
            break
        accuracy = result.evaluate().accuracy
        assert accuracy is not None
        screen.print(f"{result.run}: {accuracy.mean():.1%} of test records right, {result.guarantees()[0]}")
    for clinic in CLINICS:
        screen.print(f"{clinic}, all runs together: {ledger.guarantee(clinic, delta=BUDGET.delta)}")
    for problem in ledger.verify():
        screen.print(f"the record is not whole: {problem}")
    ledger.close()


class Net(nn.Module):
    """Two layers. Layer norm uses one record at a time; batch norm would mix them and is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.Mish(), nn.Linear(16, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return a score for each class."""
        scores: Tensor = self.layers(inputs)
        return scores


def read(path: Path) -> tuple[Tensor, Tensor]:
    """Return inputs and targets: the last column is the class."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    values = torch.tensor([[float(field) for field in row] for row in rows])
    return values[:, :-1], values[:, -1].long()


def write_files(folder: Path) -> None:
    """Write the records to files, unless the files already exist."""
    tumours = load_breast_cancer()
    names = ("public", "test", *CLINICS)
    for place, name in enumerate(names):
        path = folder / f"{name}.csv"
        if path.exists():
            continue
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*tumours.feature_names, "benign"])
            for features, label in zip(
                tumours.data[place :: len(names)], tumours.target[place :: len(names)], strict=True
            ):
                writer.writerow([*map(float, features), int(label)])
    (folder / "links.txt").write_text(LINKS)


if __name__ == "__main__":
    main()
