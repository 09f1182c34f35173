"""What the rows of `family` say: the finding with what to pick, and the table of the page on algorithms."""

import json
from collections.abc import Sequence

import numpy as np

from tacit.experiments.experiment import ResultRow, Value, write_list
from tacit.experiments.hyperparameters import DELTA
from tacit.experiments.statistics import select, summarise
from tacit.ties import RELATIVE, first_smallest, in_order

EPSILON = 1.0
BYTES, SCHEDULES, NONSENSE, VOTES = "bytes", "schedules", "nonsense", "votes"
GRAPHS = ("ring", "complete")
PAIRS = "matchings"
MASKS = "dsgt with masks"
ROUNDED = "q-dpsgd-2"
MEANS = ("metropolis", "median", "trimmed", "clipped")
SENDERS = {"ring": 1, "complete": 2}  # of nonsense
# Exchanges in a round with which every agent sends about two messages, as on a ring; rounds then make bytes equal.
CHANGING: dict[str, dict[str, Value]] = {
    "ring": {"exchanges": 1},
    "one_peer_exponential": {"exchanges": 2},
    "base": {"exchanges": 2, "peers": 1},
    "matchings": {"exchanges": 2},
    "moving": {"exchanges": 1, "reach": 0.3, "window": 100},
}
EXCHANGES = 4  # of Muffliato in a round, accelerated, on the ring
LOCAL_STEPS = 2
RHO = 0.1  # of DiNNO
_OTHER_GRIDS = ("dinno", "pate")
_PARTS = {SCHEDULES: "graphs that change", NONSENSE: "agents that send nonsense", VOTES: "votes"}
_NEAR = 0.01  # of accuracy: what counts as about as accurate


def write_finding(rows: list[ResultRow]) -> str:
    """Say what was trained, how accurate each system was with how many bytes, and what to pick."""
    lines = [
        each for each in (pick(rows), *_bytes(rows), *_schedules(rows), *_nonsense(rows), *describe_votes(rows)) if each
    ]
    return write_list(describe_runs(rows), lines)


def describe_runs(rows: Sequence[ResultRow]) -> str:
    """Say what was trained, what ε means, and how steps were chosen."""
    one = rows[0]
    grids = [{float(each) for each in json.loads(row["tried"])} for row in rows if row["algorithm"] not in _OTHER_GRIDS]
    common = set.intersection(*grids) if grids else set()
    tried = ", ".join(f"{each:g}" for each in sorted(common))
    further: dict[str, set[float]] = {}
    for row in (row for row in rows if row["algorithm"] not in _OTHER_GRIDS):
        further.setdefault(row["system"], set()).update(_steps(row) - common)
    extended = ", ".join(
        f"{system} (also {', '.join(f'{each:g}' for each in sorted(steps))})"
        for system, steps in further.items()
        if steps
    )
    edges = sorted(
        {row["system"] + (f" ({_PARTS[VOTES]})" if row["part"] == VOTES else "") for row in rows if _at_edge(row)}
    )
    edge = f" At the edge of what was tried: {', '.join(edges)}." if edges else ""
    return (
        f"{one['dataset']}, {one['features']}, {one['model']}, {one['agents']} agents (t = 1), lots of {one['lot']}, {one['rounds']:,} rounds, "
        f"{_trials(rows)}; ε = {EPSILON:g} at δ = {DELTA:g} under add-or-remove-one adjacency, against everybody else together, with "
        f"masks against any one agent; that of {ROUNDED} is by the rdp accountant, which asks for more noise. Accuracies are means over agents on "
        "test records, with 95 % intervals over trials; megabytes are those of all agents. Every system has the first step of "
        f"{tried} (for DiNNO a hundredth of these) that was most accurate on validation records, in one run with a seed of its own on the ring, "
        f"or in random pairs for leasgd and ad-psgd; {ROUNDED} has that of q-dpsgd-1. "
        + (f"Where the best was at an end of this grid, further steps were tried: {extended}. " if extended else "")
        + "The last step is a fifth of the first. Other options "
        f"have their defaults, except for {EXCHANGES} accelerated exchanges of muffliato in a round on the ring, {LOCAL_STEPS} steps of local-dsgd in a "
        f"round, and ρ = {RHO:g} of dinno.{edge}"
    )


def _trials(rows: Sequence[ResultRow]) -> str:
    """Say how many trials most have, and which have fewer."""
    found: dict[tuple[str, ...], set[int]] = {}
    for row in rows:
        where = tuple(str(row.get(name)) for name in ("links", "epsilon", "mixing", "nonsense"))
        found.setdefault((row["part"], row["system"], *where), set()).add(row["trial"])
    most = max(map(len, found.values()))
    fewer: dict[int, dict[str, None]] = {}
    for (part, system, *_), trials in found.items():
        if len(trials) < most:
            fewer.setdefault(len(trials), {})[system if part == BYTES else _PARTS[part]] = None
    exceptions = "".join(f"; {count} of {', '.join(names)}" for count, names in fewer.items())
    return f"{most} trials, the same seeds for all{exceptions}"


def _steps(row: ResultRow) -> set[float]:
    return {float(each) for each in json.loads(row["tried"])}


def _at_edge(row: ResultRow) -> bool:
    tried = _steps(row)
    return len(tried) > 1 and row["start"] in (min(tried), max(tried))


def pick(rows: Sequence[ResultRow]) -> str:
    """Return what a user should pick, by these rows: the most accurate, what is near it with fewer bytes, and what masks add."""
    sentences = []
    for links in GRAPHS:
        found = by_accuracy(select(rows, part=BYTES, links=links), "system")
        alone = {name: own for name, own in found.items() if name != MASKS}
        if not alone:
            continue
        best = next(iter(alone))
        near = [
            name for name, own in alone.items() if mean_accuracy(alone[best]) - mean_accuracy(own) <= _NEAR + RELATIVE
        ]
        least = near[first_smallest(megabytes(alone[name]) for name in near)]
        words = f"On the {links} graph, `{best}` is the most accurate without masks ({_accuracy(alone[best])})"
        if least != best:
            fewer = megabytes(alone[best]) / megabytes(alone[least])
            words += f"; `{least}` is within a point of it ({_accuracy(alone[least])}) and sends {fewer:.1f} times fewer bytes"
        if MASKS in found:
            gain = mean_accuracy(found[MASKS]) - mean_accuracy(alone[best])
            words += (
                f"; masks bring {100 * gain:+.1f} points if at most one agent is curious ({_accuracy(found[MASKS])})"
            )
        sentences.append(f"{words}.")
    paired = by_accuracy(select(rows, part=BYTES, links=PAIRS), "system")
    if paired:
        best = next(iter(paired))
        sentences.append(f"In random pairs, `{best}` is the most accurate ({_accuracy(paired[best])}).")
    return f"**What to pick.** {' '.join(sentences)}" if sentences else ""


def describe_accuracy(rows: Sequence[ResultRow], rule: str) -> str:
    """Return the mean accuracy of a rule on the ring and on the complete graph, or where else it was measured, for the table of rules."""
    own = [row for row in rows if row["system"].partition(", ")[0] == rule]
    found = {links: select(own, part=BYTES, links=links, system=rule) for links in (*GRAPHS, PAIRS)}
    if all(found[links] for links in GRAPHS):
        return " and ".join(f"{100 * mean_accuracy(found[links]):.1f}" for links in GRAPHS) + " %"
    if found[PAIRS]:
        return f"{100 * mean_accuracy(found[PAIRS]):.1f} % in pairs"
    votes = by_accuracy(select(own, part=VOTES, epsilon=EPSILON), "system")
    return f"{100 * mean_accuracy(next(iter(votes.values()))):.1f} % on even data" if votes else ""


def make_table(rows: Sequence[ResultRow]) -> str:
    """Return accuracies and megabytes of every system on every graph, in Markdown, the most accurate on the ring first."""
    own = select(rows, part=BYTES)
    places = [links for links in (*GRAPHS, PAIRS) if select(own, links=links)]
    order = list(dict.fromkeys([*by_accuracy(select(own, links="ring"), "system"), *(row["system"] for row in own)]))
    lines = [
        "| system | " + " | ".join(f"{links}, accuracy | MB" for links in places) + " | trials | first step |",
        "|---|" + "---|---|" * len(places) + "---|---|",
    ]
    for system in order:
        cells = []
        for links in places:
            found = select(own, links=links, system=system)
            cells += [_accuracy(found), f"{megabytes(found):,.1f}"] if found else ["", ""]
        step = select(own, system=system)[0]["start"]
        trials = {len(each) for links in places if (each := select(own, links=links, system=system))}
        counts = " or ".join(map(str, sorted(trials)))
        lines.append(f"| `{system}` | {' | '.join(cells)} | {counts} | {step:g} |")
    return "\n".join(lines)


def _bytes(rows: Sequence[ResultRow]) -> list[str]:
    lines = []
    for links in dict.fromkeys(row["links"] for row in select(rows, part=BYTES)):
        found = by_accuracy(select(rows, part=BYTES, links=links), "system")
        lines.append(f"**Bytes**, {links}: {_listed(found)}.")
    return lines


def _schedules(rows: Sequence[ResultRow]) -> list[str]:
    lines = []
    for system in dict.fromkeys(row["system"] for row in select(rows, part=SCHEDULES)):
        found = by_accuracy(select(rows, part=SCHEDULES, system=system), "links")
        sent = {links: [row["bytes_sent"] / 1e6 for row in own] for links, own in found.items()}
        uneven = [links for links, each in sent.items() if max(each) > min(each)]
        spread = "".join(
            f"; {links} {min(sent[links]):,.0f} to {max(sent[links]):,.0f} MB, by trial" for links in uneven
        )
        each = "; ".join(
            f"{links} {_accuracy(own)} in {own[0]['rounds']:,} rounds, {megabytes(own):,.1f} MB, σ = {max(row['noise_multiplier'] for row in own):.2f}"
            for links, own in found.items()
        )
        lines.append(
            f"**Graphs that change**, {system}, at equal bytes: every graph has the number of rounds with which it sends what the ring sends, as nearly as "
            f"whole rounds allow, on average over trials{spread}; noise is for that number of queries. {each}."
        )
    return lines


def _nonsense(rows: Sequence[ResultRow]) -> list[str]:
    lines = []
    for links in dict.fromkeys(row["links"] for row in select(rows, part=NONSENSE)):
        parts = []
        for mixing in MEANS:
            own = select(rows, part=NONSENSE, links=links, mixing=mixing)
            each = {count: _accuracy(select(own, nonsense=count)) for count in sorted({r["nonsense"] for r in own})}
            if each:
                parts.append(f"{mixing} " + " and ".join(f"{text} with {count}" for count, text in each.items()))
        lines.append(
            f"**Agents that send nonsense**, {links}, accuracy of the others, where trimmed leaves out as many values on either side as agents "
            f"send nonsense, or one: {'; '.join(parts)}."
        )
    return lines


def describe_votes(rows: Sequence[ResultRow]) -> list[str]:
    """Say how accurate votes of few and of many teachers are, beside DSGT, for each ε."""
    lines = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in select(rows, part=VOTES)):
        found = by_accuracy(select(rows, part=VOTES, epsilon=epsilon), "system")
        lines.append(f"**Votes of teachers**, evenly divided records (t = 0), ring, ε = {epsilon:g}: {_listed(found)}.")
    return lines


def _listed(found: dict[str, list[ResultRow]]) -> str:
    return "; ".join(f"{name} {_accuracy(own)}, {megabytes(own):,.1f} MB" for name, own in found.items())


def mean_accuracy(rows: Sequence[ResultRow]) -> float:
    """Return the mean accuracy of all trials."""
    return float(np.mean([row["accuracy"] for row in rows]))


def megabytes(rows: Sequence[ResultRow]) -> float:
    """Return what all agents together sent in a trial."""
    return float(np.mean([row["bytes_sent"] for row in rows])) / 1e6


def _accuracy(rows: Sequence[ResultRow]) -> str:
    return summarise([row["accuracy"] for row in rows]).percent


def by_accuracy(rows: Sequence[ResultRow], name: str) -> dict[str, list[ResultRow]]:
    """Return the rows of each value of a setting, the most accurate first."""
    each = {row[name]: select(rows, **{name: row[name]}) for row in rows}
    names = list(each)
    order = in_order(map(mean_accuracy, each.values()), descending=True)
    return {names[place]: each[names[place]] for place in order}
