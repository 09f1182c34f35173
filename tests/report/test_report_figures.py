from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from tacit.report import save_comparison, save_figures

KINDS = {"accuracy", "consensus", "epsilon", "partition", "graph"}


def names(paths):
    assert all(path.read_bytes()[:4] == (b"%PDF" if path.suffix == ".pdf" else b"\x89PNG") for path in paths)
    pictures = [imread(path) for path in paths if path.suffix == ".png"]
    assert all(picture.shape[:2] == (750, 1050) and picture.std() > 0.01 for picture in pictures)
    stems = sorted(path.stem for path in paths if path.suffix == ".png")
    assert stems == sorted(path.stem for path in paths if path.suffix == ".pdf")
    return set(stems)


def test_a_run_has_five_figures(runs, tmp_path):
    assert names(save_figures(runs["dsgt"], tmp_path / "figures")) == KINDS


def test_what_a_run_has_not_is_not_drawn(runs, tmp_path):
    assert names(save_figures(runs["open"], tmp_path / "open")) == KINDS - {"epsilon"}
    assert names(save_figures(runs["alone"], tmp_path / "alone")) == KINDS - {"consensus"}


def test_runs_are_overlaid_whatever_their_names(runs, tmp_path):
    chosen = [replace(runs["dsgt"], name="_hidden $x_1$"), runs["dinno"], runs["seeded"], runs["open"]]
    assert names(save_comparison(chosen, tmp_path)) == {"compare-accuracy", "compare-consensus", "compare-epsilon"}


def test_figures_are_the_same_whatever_the_users_settings(runs, tmp_path):
    one = save_figures(runs["dsgt"], tmp_path / "one")
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        other = save_figures(runs["dsgt"], tmp_path / "other")
        assert mpl.rcParams["font.size"] == 30
    for a, b in zip(one, other, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


@pytest.mark.parametrize("agents", [2, 150])
def test_a_crowd_is_drawn_too(runs, tmp_path, agents):
    rng = np.random.default_rng(0)
    run = runs["dsgt"]
    copies = {
        name: tuple(np.resize(getattr(run.plan, name), agents).tolist())
        for name in ("sizes", "sample_rates", "lot_sizes", "clips", "noise_multipliers", "epsilon")
    }
    plan = run.plan.model_copy(
        update=copies
        | {
            "agents": agents,
            "owners": tuple(f"owner {i}" for i in range(agents)),
            "edges": tuple((i, int(rng.integers(i))) for i in range(1, agents)),
            "counts": tuple(tuple(row) for row in rng.integers(0, 9, (agents, 25)).tolist()),
        }
    )
    plan.__dict__.pop("graph", None)
    history = tuple(
        s.model_copy(update={"accuracy": tuple(rng.uniform(size=agents)), "bytes_sent": (1,) * agents})
        for s in run.history
    )
    crowd = replace(run, plan=plan, history=history)
    assert names(save_figures(crowd, tmp_path)) == KINDS
