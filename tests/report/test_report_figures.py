from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from tacit.report import save_comparison, save_figures
from tacit.report.compared import name_runs
from tacit.report.figures.axes import draw
from tacit.report.figures.style import style
from tacit.report.plots import plot_epsilons, plot_scores

KINDS = {"accuracy", "consensus", "epsilon", "partition", "graph"}


def names(paths):
    assert all(path.read_bytes()[:4] == (b"%PDF" if path.suffix == ".pdf" else b"\x89PNG") for path in paths)
    pictures = [imread(path) for path in paths if path.suffix == ".png"]
    assert all(picture.shape[1] == 1050 and picture.std() > 0.01 for picture in pictures)
    below = [path.stem.startswith("compare") for path in paths if path.suffix == ".png"]  # lines are named below
    assert all((picture.shape[0] > 750) == more for picture, more in zip(pictures, below, strict=True))
    stems = sorted(path.stem for path in paths if path.suffix == ".png")
    assert stems == sorted(path.stem for path in paths if path.suffix == ".pdf")
    return set(stems)


@pytest.fixture(scope="module")
def figures(runs, tmp_path_factory):
    return save_figures(runs["dsgt"], tmp_path_factory.mktemp("figures") / "figures")


def test_a_run_has_five_figures(figures):
    assert names(figures) == KINDS


@pytest.mark.slow
def test_what_a_run_does_not_have_is_not_drawn(runs, tmp_path):
    assert names(save_figures(runs["open"], tmp_path / "open")) == KINDS - {"epsilon"}
    assert names(save_figures(runs["alone"], tmp_path / "alone")) == KINDS - {"consensus"}


def test_runs_are_overlaid_whatever_their_names(runs, tmp_path):
    chosen = [replace(runs["dsgt"], name="_hidden $x_1$"), runs["dinno"], runs["seeded"], runs["open"]]
    assert names(save_comparison(chosen, tmp_path)) == {"compare-accuracy", "compare-consensus", "compare-epsilon"}


def test_names_of_lines_stand_below_the_drawing_and_cover_nothing(runs):
    long = replace(runs["dinno"], name="a name that is far too long for any figure " * 3)
    with style(8):
        figure = Figure(figsize=(3.5, 2.5))
        ax = figure.add_subplot()
        draw(ax, plot_scores(name_runs([runs["dsgt"], long, runs["open"]])))
        figure.draw_without_rendering()
    (legend,) = figure.legends
    drawn, named = ax.get_tightbbox(), legend.get_window_extent()
    assert named.y1 <= drawn.y0
    assert named.x1 <= figure.bbox.x1
    assert ax.get_legend() is None


@pytest.mark.parametrize(("name", "end"), [("dsgt", "against everybody else together"), ("seeded", "not a release")])
def test_what_ε_is_stated_with_is_not_cut_off(runs, name, end):
    with style(8):
        figure = Figure(figsize=(3.5, 2.5))
        ax = figure.add_subplot()
        draw(ax, plot_epsilons(name_runs([runs[name]])))
        figure.draw_without_rendering()
    above = ax.get_title(loc="left")
    assert " ".join(above.split()).lower().endswith(end)
    assert ax.get_tightbbox().x1 <= figure.bbox.x1
    assert ax.get_tightbbox().y1 <= figure.bbox.y1


def test_runs_of_very_different_length_share_their_axis(runs):
    ax = Figure().add_subplot()
    short = replace(runs["open"], plan=replace(runs["open"].plan, rounds=6))
    draw(ax, plot_scores(name_runs([runs["dsgt"], short])))
    assert ax.get_xlabel() == "share of the run’s rounds"
    assert ax.get_xlim() == (0, 1)
    assert ax.lines[0].get_xdata()[-1] == 1
    assert ax.lines[1].get_xdata().tolist() == [snapshot.round / 6 for snapshot in short.history]


def test_figures_are_the_same_whatever_the_users_settings(figures, runs, tmp_path):
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}):
        other = save_figures(runs["dsgt"], tmp_path / "other")
        assert mpl.rcParams["font.size"] == 30
    for a, b in zip(figures, other, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


@pytest.mark.parametrize("agents", [2, pytest.param(150, marks=pytest.mark.slow)])
def test_a_crowd_is_drawn_too(runs, tmp_path, agents):
    rng = np.random.default_rng(0)
    run = runs["dsgt"]
    copies = {
        name: tuple(np.resize(getattr(run.plan, name), agents).tolist())
        for name in ("sizes", "sample_rates", "lot_sizes", "clips", "noise_multipliers", "epsilon")
    }
    plan = replace(
        run.plan,
        **copies,
        agents=agents,
        owners=tuple(f"owner {i}" for i in range(agents)),
        edges=tuple((i, int(rng.integers(i))) for i in range(1, agents)),
        counts=tuple(tuple(row) for row in rng.integers(0, 9, (agents, 25)).tolist()),
    )
    history = tuple(
        replace(s, accuracy=tuple(rng.uniform(size=agents).tolist()), loss=None, bytes_sent=(1,) * agents)
        for s in run.history
    )
    crowd = replace(run, plan=plan, history=history)
    assert names(save_figures(crowd, tmp_path)) == KINDS
