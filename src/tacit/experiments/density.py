"""`density`: the same as `connectivity`, over the share of pairs of agents that are linked."""

from tacit.experiments.topology import topology_experiment

_ALL = (0.2, 0.4, 0.6, 0.8, 1.0)

EXPERIMENT = topology_experiment(
    name="density",
    title="Accuracy over the density of links",
    claim="All private algorithms are relatively invariant to density down to about 0.4; DP-DSGT is invariant to extremely sparse "
    "graphs, DP-DSGD and DP-DiNNO down to that threshold.",
    measure="density",
    label="share of pairs that are linked",
    threshold=0.4,
    levels={
        "smoke": ((0.2, 1.0), (10.0, None)),
        "laptop": (_ALL, (1.0, None)),
        "paper": (_ALL, (0.5, 1.0, 10.0, 100.0, None)),
    },
)
