"""`connectivity`: accuracy over the graph's algebraic connectivity, divided by N, and the privacy budget."""

from tacit.experiments.topology import topology_experiment

_ALL = (0.06, 0.39, 0.7, 1.0)

EXPERIMENT = topology_experiment(
    name="connectivity",
    title="Accuracy over algebraic connectivity",
    claim="DP-DSGT does not depend on connectivity; DP-DSGD and DP-DiNNO do not above a normalised Fiedler value of about 0.4, "
    "and decline below. At (1, 1e-5), DP-DSGT comes within about 3 points of central DP-SGD.",
    measure="fiedler",
    label="Fiedler value / N",
    threshold=0.39,
    levels={
        "smoke": ((0.06, 1.0), (10.0, None)),
        "laptop": (_ALL, (1.0, 10.0, None)),
        "paper": (_ALL, (0.5, 1.0, 10.0, 100.0, None)),
    },
)
