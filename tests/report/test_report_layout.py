"""Where agents are drawn."""

import networkx as nx
import numpy as np
import pytest

from tacit.graphs import grid, ring, torus
from tacit.report.figures.layout import lay_out


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (2, 5), (4, 4), (5, 3)])
def test_a_torus_is_drawn_as_rows_and_columns(rows, columns):
    places = lay_out(torus(rows * columns, rows=rows)).reshape(rows, columns, 2)
    assert np.abs(places).max() == pytest.approx(1)
    assert (np.diff(places[:, :, 0], axis=1) > 0).all(), "columns run from left to right"
    assert (np.diff(places[:, :, 1], axis=0) < 0).all(), "rows run from top to bottom"
    for row in places[:, :, 1]:
        assert np.ptp(row) < 0.5 * np.abs(np.diff(places[:, 0, 1])).min() + 0.2, "a row is nearly level"


def test_links_around_a_torus_do_not_hide_behind_its_rows():
    places = lay_out(torus(16)).reshape(4, 4, 2)
    for row in places:
        chord = row[0, 1] + (row[3, 1] - row[0, 1]) * (row[1:3, 0] - row[0, 0]) / (row[3, 0] - row[0, 0])
        assert (np.abs(row[1:3, 1] - chord) > 0.1).all()


def test_other_graphs_are_drawn_as_before():
    circle = lay_out(ring(6))
    assert np.hypot(*circle.T) == pytest.approx(np.hypot(*circle[0]), rel=0.2)
    for graph in (grid(12), nx.hypercube_graph(4), nx.random_regular_graph(4, 12, seed=0)):
        numbered = nx.convert_node_labels_to_integers(graph)
        assert lay_out(numbered).shape == (len(numbered), 2)
