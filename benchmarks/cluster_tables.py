"""The tables of `docs/cluster.md`, as Markdown, from what the benchmark `cluster` has measured."""

from collections.abc import Iterable, Mapping, Sequence

_NAMES = {
    "convnet_20": "ConvNet, 20 agents on a ring",
    "mlp_10000_ring": "MLP, 10,000 agents on a ring",
    "mlp_10000_random": "MLP, 10,000 agents on a random graph of degree 6",
}
_ROW_BYTES = 4 * 9910  # of the MLP
_CROSSING = {
    100_000: (0.052, 3.40),
    1_000_000: (0.011, 3.40),
}  # rows for each agent on 64 ranks by METIS: geometric, random
_RANKS = 64


def as_markdown(cases: Sequence[str], values: Mapping[str, float], constants: tuple[float, float]) -> str:
    """Return all tables; `values` are rows and ratios by name, and `constants` latency and bandwidth between two ranks."""
    shown = [case for case in cases if case in _NAMES]
    return "\n\n".join(
        [
            _times(shown, values),
            _shares(shown, values),
            _memory(shown, values),
            _model(shown, values),
            _large(values, constants),
        ]
    )


def _times(cases: Sequence[str], values: Mapping[str, float]) -> str:
    """Return the milliseconds of a round of all sides."""
    sides = ("one_thread", "two_threads", "two_apart", "two_ranks", "four_ranks")
    rows = [[_NAMES[case], *(_milliseconds(values[f"{case}_{side}"]) for side in sides)] for case in cases]
    return _table(("milliseconds of a round", *(side.replace("_", " ") for side in sides)), rows)


def _shares(cases: Sequence[str], values: Mapping[str, float]) -> str:
    """Return how much faster than one thread, how near to ideal, and what was waited for and sent."""
    sides, ranks, rows = ("two_apart", "two_ranks", "four_ranks"), ("two_ranks", "four_ranks"), []
    for case in cases:
        shares = [100 / values[f"{case}_divided_by_ideal_{side}"] for side in ranks]
        rows.append(
            [
                _NAMES[case],
                *(f"{values[f'{case}_speedup_of_{side}']:.2f}" for side in sides),
                ", ".join(f"{share:.0f}" for share in shares) + " %",
                ", ".join(f"{values[f'{case}_processor_time_of_{side}']:.2f}" for side in sides),
                f"{100 * values[f'{case}_share_of_waiting_two_ranks']:.1f} %",
                ", ".join(_short(values[f"{case}_crossed_{side}"]) for side in ranks) + " MB",
            ]
        )
    head = [
        "speedup over one thread",
        "two apart: ideal",
        "two ranks",
        "four ranks",
        "two and four ranks, of ideal",
        "processor time of two apart, two ranks, four ranks",
        "two ranks wait",
        "two and four ranks send",
    ]
    return _table(head, rows)


def _memory(cases: Sequence[str], values: Mapping[str, float]) -> str:
    sides = ("one_thread", "two_ranks", "four_ranks")
    rows = [[_NAMES[case], *(f"{values[f'{case}_memory_{side}']:,.0f} MiB" for side in sides)] for case in cases]
    return _table(("", "alone", "a rank of two", "a rank of four"), rows)


def _model(cases: Sequence[str], values: Mapping[str, float]) -> str:
    rows = []
    for case in cases:
        for side in ("two_ranks", "four_ranks"):
            more = round(100 * (values[f"{case}_measured_divided_by_model_{side}"] - 1))
            words = "the same" if not more else f"{abs(more)} % {'more' if more > 0 else 'less'}"
            both = (values[f"{case}_model_{side}"], values[f"{case}_{side}"])
            rows.append(
                [f"{_NAMES[case]}, {side.replace('_', ' ')}", *(f"{_milliseconds(each)} ms" for each in both), words]
            )
    return _table(("", "the model", "measured", ""), rows)


def _large(values: Mapping[str, float], constants: tuple[float, float]) -> str:
    """Return the model's rounds on 64 ranks, with its constants in a sentence."""
    latency, bandwidth = constants
    ring, random = (values[f"mlp_10000_{graph}_agent"] for graph in ("ring", "random"))
    swaps = [[values[f"all_to_all_{ranks}_ranks_{size}"] for size in ("40 KB", "1 MB", "30 MB")] for ranks in (2, 4)]
    words = (
        f"Constants: {ring:.0f} µs for an agent's round on a ring and {random:.0f} µs on the random graph, both cores busy; an all-to-all between two "
        f"ranks {latency * 1e3:.2f} ms and {bandwidth / 1e9:.2g} GB/s ({_list(swaps[0])} ms for 40 KB, 1 MB, 30 MB; between four {_list(swaps[1])} ms). Rows that "
        f"wait at once: {values['overlap_at_once_divided_by_meanwhile']:.2f} times as long."
    )
    rows = []
    for agents, crossing in _CROSSING.items():
        own = agents / _RANKS
        sending = [own * each * _ROW_BYTES / bandwidth + latency * (_RANKS - 1) for each in crossing]
        rows.append([f"{agents:,}", f"{own * random / 1e6:.1f} s", *(f"{each:.2g} s" for each in sending)])
    return f"{words}\n\n" + _table(("agents on 64 ranks", "computing", "geometric, METIS", "random, METIS"), rows)


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{each:.3g}" for each in values)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
