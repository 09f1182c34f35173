"""Searches for the steps of the paper's ConvNet on MNIST at ε=1, beside a grid made by hand: `python docs/tune_mnist.py FOLDER [--ray]`.

For each of the four algorithms: a population of `tacit tune`; a grid of steps, each played with the same settings; and the best of both with another
seed. `--ray` also plays DP-DSGT's population by Ray Tune. Writes the figure of `docs/tune.md` and prints its tables. Whatever FOLDER holds already is not played again. MNIST is expected where `TACIT_DATA` says.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import tomli_w

from tacit.report.figures.style import save_figure, style
from tacit.runs.config import RunConfig
from tacit.ties import first_largest
from tacit.tuning.stack import make_stack

FIGURE = Path(__file__).parent / "images" / "tune-mnist-convnet.png"
NAMES = {"central": "central DP-SGD", "dsgd": "DP-DSGD", "dsgt": "DP-DSGT", "dinno": "DP-DiNNO"}
SHARED: dict[str, Any] = {
    "dataset": "mnist",
    "model": "convnet",
    "epsilon": 1.0,
    "delta": 1e-5,
    "clip": 1.0,
    "rounds": 100,
    "source": "fast",
    "spare_queries": 0,
}
AGENTS = {"agents": 10, "graph": "complete", "lot_size": 256.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "central": {"algorithm": "sgd", "agents": 1, "lot_size": 2560.0},
    "dsgd": {"algorithm": "dsgd", **AGENTS},
    "dsgt": {"algorithm": "dsgt", **AGENTS},
    "dinno": {"algorithm": "dinno", "step": "plain", "rho": 0.05, "rho_growth": 1.001, **AGENTS},
}
SEARCHED = {
    "central": ("lr=log:0.5..16",),
    "dsgd": ("lr=log:0.1..3.2",),
    "dsgt": ("lr=log:0.25..8",),
    "dinno": ("lr=log:0.1..3.2", "rho=log:0.02..0.5"),
}
RATIO = {
    "central": 5.0,
    "dsgd": 10.0,
    "dsgt": 10.0,
    "dinno": 20.0,
}  # of the first step to the last, as in the accuracy table
GRID: dict[str, list[dict[str, float]]] = {
    "central": [{"lr": lr} for lr in (2.0, 4.0, 8.0, 16.0)],
    "dsgd": [{"lr": lr} for lr in (0.5, 1.0, 2.0, 4.0, 8.0)],
    "dsgt": [{"lr": lr} for lr in (1.0, 2.0, 4.0, 8.0, 16.0)],
    "dinno": [{"lr": lr, "rho": rho} for lr in (0.25, 0.5, 1.0, 2.0) for rho in (0.05, 0.2)],
}


def main() -> None:
    """Play what is missing, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ray", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    found, hand = {}, {}
    for name in NAMES:
        (given.folder / f"{name}.toml").write_text(tomli_w.dumps(SHARED | SETTINGS[name]))
        grid = [{**steps, "lr_final": steps["lr"] / RATIO[name]} for steps in GRID[name]]
        scores = played(given.folder, name, "grid", grid, seed=0)
        for settings, score in zip(grid, scores, strict=True):
            print(f"- {NAMES[name]}: {percent(score)} with {written(settings)}", flush=True)
        place = first_largest(scores)
        hand[name], chosen = scores[place], grid[place]
        found[name] = searched(given.folder, name, "pop")
        both = [chosen, found[name]["settings"]]
        repeated = played(given.folder, name, "again", both, seed=1)
        best = max(trial["score"] for trial in found[name]["trials"])
        cells = [f"{percent(hand[name])} ({written(chosen)})", percent(repeated[0])]
        cells += [f"{percent(best)} ({written(found[name]['settings'])})", percent(repeated[1])]
        print(f"| {' | '.join([NAMES[name], *cells])} |", flush=True)
    if given.ray:
        on_ray = searched(given.folder, "dsgt", "ray", "--on", "ray")
        again = played(given.folder, "dsgt", "ray-again", [on_ray["settings"]], seed=1)
        best = max(trial["score"] for trial in on_ray["trials"])
        print(f"| DP-DSGT, on Ray | | | {percent(best)} ({written(on_ray['settings'])}) | {percent(again[0])} |")
    draw(found, hand)


def searched(folder: Path, name: str, kind: str, *more: str) -> dict[str, Any]:
    """Return the outcome of a population of six in four generations."""
    path = folder / f"{kind}-{name}.json"
    if not path.exists() or not path.read_text().strip():
        words = ["tune", f"{name}.toml", "--population", "6", "--generations", "4", "--json", *more]
        words += [word for each in SEARCHED[name] for word in ("--parameter", each)]
        (folder / f"{kind}-{name}.toml").unlink(missing_ok=True)
        path.write_text(tacit(folder, *words, "--output", f"{kind}-{name}.toml"))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def played(folder: Path, name: str, kind: str, tried: list[dict[str, float]], seed: int) -> list[float]:
    """Return the agents' mean accuracy on validation records with each of these settings, played side by side."""
    path = folder / f"{kind}-{name}.json"
    if not path.exists():
        configs = [RunConfig.of(SHARED | SETTINGS[name] | settings | {"seed": seed}) for settings in tried]
        first = 1000 * (seed + 1)  # no two of these, and no trial of the search, share lots or noise
        numbers = range(first, first + len(tried))
        stack = make_stack(configs, numbers, name=kind, ledger=None, every=SHARED["rounds"])
        with stack.session:
            stack.play()
            path.write_text(json.dumps(stack.scores()))
    scores: list[float] = json.loads(path.read_text())
    return scores


def percent(share: float) -> str:
    """Return a share as the page writes it."""
    return f"{100 * share:.1f} %"


def written(settings: dict[str, float]) -> str:
    """Return the settings that a search found as the page writes them."""
    start, finish = settings["lr"], settings.get("lr_final", settings["lr"])
    steps = f"η {start:.2g}" if start == finish else f"η from {start:.2g} to {finish:.2g}"
    return ", ".join([steps, *([f"ρ={settings['rho']:.2g}"] if "rho" in settings else [])])


def tacit(folder: Path, *words: str) -> str:
    """Run a command in the folder, and return what it prints."""
    command = [sys.executable, "-m", "tacit", *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def draw(found: dict[str, dict[str, Any]], hand: dict[str, float]) -> None:
    """Draw every trial's accuracy over generations, with that of the best steps of the grid."""
    with style():
        figure, axes = plt.subplots(1, len(found), figsize=(9.0, 2.6), sharey=True)
        for ax, (name, outcome) in zip(axes, found.items(), strict=True):
            for place, trial in enumerate(outcome["trials"]):
                scores = [100 * score for score in trial["scores"]]
                ax.plot(range(1, len(scores) + 1), scores, marker="o", markersize=3, alpha=0.4 if place else 1.0)
            ax.axhline(100 * hand[name], color="black", linestyle="--", linewidth=1, label="best of the grid")
            ax.set(xlabel="generation", title=NAMES[name], ylim=(0, 100), xticks=range(1, 5))
        axes[0].set_ylabel("accuracy on validation, %")
        axes[0].legend(loc="lower right")
        save_figure(figure, FIGURE)


if __name__ == "__main__":
    main()
