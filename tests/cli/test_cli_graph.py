import json
import math

import networkx as nx
import numpy as np
import pytest
from invoking import answer, complaint, document, is_picture, one_line, stopped_reading
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import GraphError, InvalidInput
from tacit.graphs import build, find_graph, normalized_algebraic_connectivity, read_graph
from tacit.registry import GRAPHS
from tacit.report.wording import list_agents
from tacit.runs.specs import parse_graph

KEYS = {
    "agents",
    "edges",
    "fiedler",
    "normalized_fiedler",
    "density",
    "spectral_gap",
    "centrality",
    "diameter",
    "edge_list",
}


def test_ring_of_ten_has_the_known_measures():
    result = document("graph", "ring", "--agents", 10)
    assert set(result) >= KEYS
    assert (result["agents"], result["edges"], result["diameter"]) == (10, 10, 5)
    assert result["fiedler"] == pytest.approx(2 - 2 * math.cos(math.pi / 5))
    assert result["normalized_fiedler"] == pytest.approx(0.038197, rel=1e-4)
    assert result["density"] == pytest.approx(10 / 45)
    assert result["spectral_gap"] == pytest.approx((2 - 2 * math.cos(math.pi / 5)) / 3)
    assert result["centrality"] == pytest.approx([10**-0.5] * 10)
    assert nx.utils.graphs_equal(nx.Graph(result["edge_list"]), nx.Graph(build("ring", 10).edges))


@pytest.mark.parametrize("kind", GRAPHS)
def test_every_kind_can_be_built(kind):
    result = document("graph", kind, "--agents", 16, "--seed", 3)
    graph = build(kind, 16, seed=3)
    assert result["edge_list"] == [list(edge) for edge in graph.edges]
    assert result["agents"] == 16
    assert kind in answer("graph", kind, "--agents", 16, "--seed", 3)


def test_search_finds_a_graph_of_the_wanted_connectivity():
    args = ("graph", "random", "--agents", 10, "--fiedler", 0.39, "--seed", 7)
    result = document(*args)
    assert result["normalized_fiedler"] == pytest.approx(0.39, abs=0.01)
    assert result == document(*args)
    assert "wanted: 0.39" in answer(*args)


@pytest.mark.parametrize(("option", "value"), [("density", 0.4), ("centrality", 0.05)])
def test_search_takes_other_targets(option, value):
    result = document("graph", "random", "--agents", 10, f"--{option}", value, "--tolerance", 0.02)
    found = result["density"] if option == "density" else result["centrality"][0]
    assert found == pytest.approx(value, abs=0.02)


def test_options_of_kinds_are_passed_on():
    assert document("graph", "random_regular", "--agents", 10, "--degree", 3)["edges"] == 15
    assert document("graph", "torus", "--agents", 12, "--rows", 2)["edges"] == build("torus", 12, rows=2).size()
    args = ("graph", "small_world", "--agents", 20, "--degree", 6, "--rewire", 0.5)
    assert document(*args)["edge_list"] == [list(e) for e in build("small_world", 20, degree=6, rewire=0.5).edges]
    assert document("graph", "erdos_renyi", "--agents", 6, "--probability", 1)["density"] == 1


def test_spectral_gap_is_that_of_the_rule_asked_for():
    star = ("graph", "star", "--agents", 6)
    default, other = document(*star), document(*star, "--mixing", "max_degree")
    assert (default["mixing"], other["mixing"]) == ("metropolis", "max_degree")
    assert document("graph", "ring", "--agents", 6, "--mixing", "uniform")["spectral_gap"] == pytest.approx(1 / 3)
    assert "(max_degree)" in answer(*star, "--mixing", "max_degree")


def test_a_saved_graph_is_read_again(tmp_path):
    path = tmp_path / "graph [1].txt"
    built = document("graph", "wheel", "--agents", 7, "--save", path)
    assert nx.utils.graphs_equal(read_graph(path), build("wheel", 7))
    again = document("graph", path)
    assert {key: again[key] for key in KEYS} == {key: built[key] for key in KEYS}
    assert again == document("graph", path, "--agents", 7)
    assert "graph [1].txt: 7 agents, 12 links" in answer("graph", path).replace("\n", "")


def test_text_lists_measures_and_neighbours():
    text = answer("graph", "star", "--agents", 10)
    assert text.startswith("star: 10 agents, 9 links\n")
    for piece in ("normalized_fiedler", "0.1000", "0.2357–0.7071", "spectral_gap", " 0  1–9 ", "0.707 ████████████"):
        assert piece in text
    assert "…" not in text


def test_neighbours_in_the_listing_are_numbers_and_ranges_with_spaces_between(tmp_path):
    path = tmp_path / "links.txt"
    links = "\n".join(f"0 {other}" for other in (1, 2, 4, 5, 6, 8))
    path.write_text(f"{links}\n3 4\n7 8\n")
    assert " 0  1 2 4–6 8  " in answer("graph", path)


def test_many_agents_are_measured_but_not_listed():
    text = answer("graph", "exponential", "--agents", 200)
    assert "neighbours  centrality" not in text
    assert len(text.splitlines()) < 20


def test_a_crowd_of_neighbours_fits_the_line():
    text = answer("graph", "erdos_renyi", "--agents", 32, "--probability", 0.5, "--seed", 1)
    assert "neighbours" in text
    assert "…" not in text


@pytest.mark.parametrize("agents", [1, 2])
def test_the_smallest_graphs(agents, tmp_path):
    assert document("graph", "ring", "--agents", agents)["diameter"] == agents - 1
    answer("graph", "ring", "--agents", agents, "--plot", tmp_path / "small.png")
    assert is_picture(tmp_path / "small.png")


@pytest.mark.parametrize(
    ("name", "agents"), [("graph.png", 10), ("graph.pdf", 30), ("graph.svg", 12), ("$a_1$ {[x]}.png", 150)]
)
def test_plot_makes_the_picture_that_its_name_says(tmp_path, name, agents):
    document("graph", "small_world", "--agents", agents, "--plot", tmp_path / name)
    assert is_picture(tmp_path / name)


def test_the_same_command_makes_the_same_picture(tmp_path):
    contents = []
    for name in ("a.svg", "b.svg"):
        document("graph", "star", "--agents", 8, "--plot", tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("rng", "--agents", 10), "unknown graph kind 'rng'; did you mean 'ring'?"),
        (("rng", "--agents", 10), "there is no file of this name"),
        (("randm", "--agents", 10), "did you mean 'random'?"),
        (("ring",), "how many agents?"),
        ((), "missing argument 'KIND|FILE'"),
        (("ring", "--agents", 0), "agents must be a whole number of at least 1, got 0"),
        (("ring", "--agents", "ten"), "--agents is 'ten'; it must be a whole number"),
        (("ring", "--agents", 10, "--degree", 3), "graph kind 'ring' takes no options, got 'degree'"),
        (("ring", "--agents", 10, "--fiedler", 0.3), "use kind 'random' instead of 'ring'"),
        (("grid", "--agents", 10, "--degree", 3), "unknown option of graph kind 'grid' 'degree'"),
        (("random", "--agents", 10), "nothing to search for: give fiedler, density or centrality"),
        (("random", "--agents", 10, "--rows", 2, "--fiedler", 0.4), "graph kind 'random' has no option 'rows'"),
        (("random", "--agents", 10, "--fiedler", 3.9), "fiedler must be a number between 0 and 1, got 3.9"),
        (("random", "--agents", 10, "--fiedler", 0.9), "fiedler 0.9 is out of reach"),
        (("random", "--agents", 10, "--density", 0.1), "density 0.1 is out of reach"),
        (("random", "--agents", 10, "--centrality", 0.9), "centrality 0.9 is out of reach"),
        (
            ("random", "--agents", 6, "--fiedler", 0.3, "--centrality", 0.7, "--tolerance", 1e-4, "--restarts", 1),
            "no graph of 6 agents found within 0.0001 of fiedler 0.3, centrality 0.7; the closest",
        ),
        (("hypercube", "--agents", 12), "a hypercube has a power of two agents, got 12"),
        (("torus", "--agents", 12, "--rows", 5), "rows can be 1, 2, 3, 4, 6, 12"),
        (("random_regular", "--agents", 5, "--degree", 3), "their product must be even"),
        (("erdos_renyi", "--agents", 50, "--probability", 0.001), "were all disconnected"),
        (("small_world", "--agents", 9, "--rewire", 2), "rewire must be a number between 0 and 1, got 2.0"),
        (("star", "--agents", 5, "--mixing", "uniform"), "use 'metropolis' or 'max_degree'"),
        (("star", "--agents", 5, "--mixing", "metro"), "--mixing is 'metro'; it must be one of metropolis, max"),
        (("ring", "--agents", 4, "--seed", -1), "--seed is -1; it must be at least 0"),
        (("missing.txt",), "missing.txt: cannot be read: No such file"),
        (("some/[red]where[/red]",), "some/[red]where[/red]: cannot be read: No such file"),
        (("/",), "/: cannot be read: Is a directory"),
        (("ring", "--agents", 4, "--plot", "x.jpeg"), "this name ends in '.jpeg'"),
        (("ring", "--agents", 4, "--save", "/"), "/: this is a folder; name a file in it"),
        (("ring", "--agents", 4, "--save", "/dev/null/x.txt"), "because /dev/null is not a folder"),
        (("ring", "--agents", 4, "--plot", "/dev/null/x.png"), "because /dev/null is not a folder"),
        (("ring", "--agents", 2001, "--plot", "x.png"), "a picture of 2,001 agents would show nothing"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in complaint("graph", *args)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0 1\n2 3\n", "the graph is not connected"),
        (b"0 1\n1 x\n", "line 2: 'x' is not a whole number"),
        (b"0 1 2\n", "an adjacency matrix has as many columns as rows"),
        (b"", "no graph in it"),
        (b"\xff\xfe\x00", "line 1: not text"),
        (b"\x93NUMPY broken", "not a readable numpy array"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "graph.txt"
    path.write_bytes(content)
    said = complaint("graph", path)
    assert message in said
    assert str(path) in said


def test_a_file_of_other_agents_or_with_options_is_refused(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text("0 1\n1 2\n")
    assert "the graph has 3 agents, but 10 are wanted" in complaint("graph", path, "--agents", 10)
    assert "a graph in a file takes no options, got 'degree'" in complaint("graph", path, "--degree", 2)


def test_a_file_with_weights_is_measured_and_saved_with_them(tmp_path):
    path, copy = tmp_path / "graph.txt", tmp_path / "copy.txt"
    path.write_text("0 1 0.1\n1 2 0.2\n2 0 0.3\n")
    found = document("graph", path, "--save", copy)
    weights = [[0.6, 0.1, 0.3], [0.1, 0.7, 0.2], [0.3, 0.2, 0.5]]
    assert found["mixing"] == "file"
    assert found["spectral_gap"] == pytest.approx(1 - np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2])
    assert (found["agents"], found["edges"]) == (3, 3)
    assert document("graph", copy)["spectral_gap"] == found["spectral_gap"]
    assert "of W (file): disagreement removed in a round" in answer("graph", path)
    assert "has its own weights, so max_degree has no effect" in complaint("graph", path, "--mixing", "max_degree")


def test_agents_with_names_are_shown_by_them(tmp_path):
    (tmp_path / "e.txt").write_text("anna berta\nberta carla\n")
    lines = answer("graph", tmp_path / "e.txt").splitlines()
    assert any(line.split()[:4] == ["1", "berta", "anna", "carla"] for line in lines)
    assert document("graph", tmp_path / "e.txt")["names"] == ["anna", "berta", "carla"]
    assert "names" not in document("graph", "ring", "--agents", 3)


def test_a_reader_that_stops_early_sees_no_traceback():
    assert stopped_reading("graph", "complete", "--agents", 300, "--json") == ""


def test_help_has_an_example_and_names_every_kind():
    said = answer("graph", "--help")
    assert "tacit graph random --agents 10 --fiedler 0.39 --seed 7" in said
    listed = one_line(said.replace("│", " ")).partition("One of ")[2].partition("; random")[0]
    assert listed.split(", ") == list(GRAPHS)


def same(one, other):
    return nx.utils.graphs_equal(one, other)


def test_a_text_names_a_graph_with_its_options(tmp_path):
    assert same(parse_graph("ring", 5, 0), build("ring", 5))
    assert same(parse_graph(" torus:rows=3 ", 12, 0), build("torus", 12, rows=3))
    assert same(
        parse_graph("small-world:degree=4, rewire=0.3", 12, 5), build("small_world", 12, seed=5, degree=4, rewire=0.3)
    )
    found = parse_graph("random:fiedler=0.39,tolerance=0.02", 10, 7)
    assert same(found, find_graph(10, fiedler=0.39, tolerance=0.02, seed=7))
    assert normalized_algebraic_connectivity(found) == pytest.approx(0.39, abs=0.02)
    np.savetxt(tmp_path / "matrix", nx.to_numpy_array(build("star", 4)), fmt="%d")
    assert same(parse_graph(str(tmp_path / "matrix"), 4, 0), build("star", 4))


def test_a_seed_in_the_text_makes_one_graph_in_every_run():
    text = "erdos_renyi:probability=0.4,seed=3"
    assert same(parse_graph(text, 12, 0), parse_graph(text, 12, 1))
    assert same(parse_graph(text, 12, 0), parse_graph("erdos_renyi:probability=0.4", 12, 3))


def test_a_file_called_like_a_kind_is_meant_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring").write_text("0 1\n1 2\n")
    (tmp_path / "plain").write_text("0 1\n1 2\n")
    assert parse_graph("ring", 5).size() == 5
    assert parse_graph("./ring", None).size() == 2
    assert parse_graph("plain", None).size() == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("small_world:degre=4", "'degre'; did you mean 'degree'? (known: degree, rewire)"),
        ("ring:degre=4", "graph kind 'ring' takes no options, got 'degre'"),
        ("random:fidler=0.4", "did you mean 'fiedler'? (known: centrality, density, fiedler, restarts, tolerance)"),
        (
            "rign",
            "did you mean 'ring'? (known: base, complete, erdos_renyi, exponential, grid, hypercube, matchings, moving, ",
        ),
        ("small_world:degree=4.5", "'degree' is a whole number, got '4.5'"),
        ("small_world:rewire=much", "'rewire' is a number, got 'much'"),
        ("small_world:degree", "'degree' is a whole number, got ''"),
        ("small_world:degree=2,degree=4", "'degree' is given twice"),
        ("random", "nothing to search for"),
        ("ring:density=0.4", "use kind 'random'"),
        ("", "unknown graph kind ''"),
        (
            "matchings",
            "'matchings' changes from round to round, but a single graph is needed here; give one, such as ring",
        ),
        ("one-peer", "did you mean 'one_peer_exponential'?"),
        ("x" * 5000, "there is no file of this name"),
    ],
)
def test_a_text_that_names_no_graph_says_why(text, message):
    with pytest.raises((GraphError, InvalidInput)) as caught:
        parse_graph(text, 10, 0)
    assert message in str(caught.value)


def test_consecutive_numbers_are_written_as_ranges():
    assert list_agents([]) == ""
    assert list_agents([0, 1, 3, 4, 5, 9]) == "0, 1, 3–5, 9"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("torus", "--agents", 7), "note: a torus of 1 × 7 agents is a ring; 8 agents would have rows and columns\n"),
        (
            ("torus", "--agents", 6, "--rows", 6),
            "note: a torus of 6 × 1 agents is a ring; other rows would make it wider\n",
        ),
        (("torus:rows=1", "--agents", 6), "note: a torus of 1 × 6 agents is a ring; other rows would make it wider\n"),
        (("grid", "--agents", 5), "note: a grid of 1 × 5 agents is a path; 6 agents would have rows and columns\n"),
        (("torus", "--agents", 6), ""),
        (("ring", "--agents", 7), ""),
    ],
)
def test_a_torus_that_is_only_a_ring_is_reported(args, message):
    result = CliRunner().invoke(app, ["graph", *map(str, args), "--json"])
    assert result.exit_code == 0
    assert result.stderr == message
    assert json.loads(result.stdout)["agents"] == int(args[2])


def test_links_that_change_are_measured_and_drawn(tmp_path):
    picture = tmp_path / "base.png"
    found = document("graph", "base", "--agents", 10)
    assert (found["rounds"], found["most_neighbors"], found["contraction"]) == (6, 1, 0.0)
    said = answer("graph", "one_peer_exponential", "--agents", 10, "--plot", picture)
    assert "of disagreement left after these rounds" in said
    assert "0.1924" in said
    assert is_picture(picture)


def test_options_of_links_that_change_are_written_behind_them():
    assert "as in moving:reach=0.4" in complaint("graph", "base", "--agents", 10, "--degree", 3)
    assert "how many agents?" in complaint("graph", "matchings")
