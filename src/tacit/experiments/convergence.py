"""`convergence`: the paper's two theorems where they can be checked, on a strongly convex problem with a known optimum.

With full lots and inactive clipping, the base algorithm converges linearly to a limit of its own. The noisy run should come as
near to that limit as σ allows. With decaying steps, the noisy run is compared with the noiseless one at the same round. The
effects of clipping, at the least σ, and of small lots, without any noise, are measured separately.
"""

from dataclasses import dataclass

from tacit.experiments import convergence_drawing, convergence_finding
from tacit.experiments.convergence_problem import CLIP, LEAST_NOISE, RECORDS, RULES, distance, noiseless, problem, watch
from tacit.experiments.experiment import Environment, Experiment, Point, Profile, ResultRow

_SNAPSHOTS = 50
_LIMIT = 3  # times as many rounds for the noiseless limit
_STEPS = ("constant", "summable", "harmonic")
_SIGMAS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, kw_only=True)
class _Size:
    agents: int
    rounds: int
    trials: int
    sigmas: tuple[float, ...] = _SIGMAS
    steps: tuple[str, ...] = _STEPS
    clips: tuple[float, ...] = (0.4, 0.2)
    lots: tuple[int, ...] = (RECORDS // 2, RECORDS // 8)


_SIZES: dict[Profile, _Size] = {
    "smoke": _Size(
        agents=5, rounds=20, trials=2, sigmas=(0.05, 0.5), steps=_STEPS[:2], clips=(0.2,), lots=(RECORDS // 8,)
    ),
    "laptop": _Size(agents=10, rounds=400, trials=8),
    "paper": _Size(agents=10, rounds=600, trials=20),
}


def _points(profile: Profile) -> list[Point]:
    size = _SIZES[profile]
    fixed = {"agents": size.agents, "rounds": size.rounds}
    points = []
    usual = {"clip": CLIP, "lot": RECORDS, "trials": size.trials, "seed": 0}
    for algorithm in RULES:
        for part in size.steps:
            points.append(Point.of(algorithm=algorithm, part=part, sigma=0.0, **usual | {"trials": 1}, **fixed))
            for number, sigma in enumerate(size.sigmas, 1):
                # Seeds differ from σ to σ: with the same noise, only larger, a slope of one would prove little.
                seeded = usual | {"seed": 100 * number}
                points.append(Point.of(algorithm=algorithm, part=part, sigma=sigma, **seeded, **fixed))
        for clip in size.clips:
            clipped = usual | {"clip": clip}
            points.append(Point.of(algorithm=algorithm, part="clipping", sigma=LEAST_NOISE, **clipped, **fixed))
        for lot in size.lots:
            points.append(Point.of(algorithm=algorithm, part="lots", sigma=0.0, **usual | {"lot": lot}, **fixed))
    return points


def _run(point: Point, environment: Environment) -> list[ResultRow]:
    algorithm, agents, rounds = point["algorithm"], point["agents"], point["rounds"]
    steps = point["part"] if point["part"] in _STEPS else "constant"
    plain = point["sigma"] == 0
    course = watch(
        algorithm,
        agents=agents,
        rounds=rounds,
        steps=steps,
        trials=point["trials"],
        sigma=point["sigma"],
        clip=None if plain else point["clip"],
        lot=point["lot"],
        seed=point["seed"],
    )
    limit = noiseless(algorithm, agents, _LIMIT * rounds, "constant")[-1]
    base = noiseless(algorithm, agents, rounds, steps)
    optimum = problem(agents)[1]
    rows = []
    for place in range(0, rounds, max(1, rounds // _SNAPSHOTS)):
        theta = course.theta[place]
        measures = {
            "to_limit": distance(theta, limit),
            "to_noiseless": distance(theta, base[place]),
            "to_optimum": distance(theta, optimum),
            "average_to_limit": (theta.mean(dim=1) - limit.mean(dim=0)).norm(dim=-1),
        }
        for trial in range(point["trials"]):
            values = {name: float(each[trial]) for name, each in measures.items()}
            rows.append({"trial": trial, "round": place + 1, **values, "clipped_share": course.clipped})
    return rows


def _seconds(point: Point) -> float:
    queries = point["rounds"] * (2 if point["algorithm"] == "dinno" else 1)
    return 0.5 + queries * (0.0015 + 0.00004 * point["agents"] * point["trials"])


EXPERIMENT = Experiment(
    name="convergence",
    title="The two theorems on a convex problem",
    claim="Theorem 1: if the base algorithm “converges to the optimal solution M(θ*) at a linear rate”, the private one “also "
    "converges to the optimal solution M(θ*) at a linear rate within an error neighborhood on the order of O(σ)”; DSGD, DSGT and "
    "DiNNO “converge linearly when the objective function is strongly convex”. Theorem 2: with steps of at most η̂/(Ck), where the "
    "sum of η̂ is finite, and a base algorithm that “converges to the optimal solution θ*”, the private one “also converges to the "
    "optimal solution M(θ*) in an error neighborhood of O(σ)”. And “gradient clipping is equivalent to reducing the step size "
    "η^k, which may rescale the contraction factor ρ of the linear rate but does not affect the convergence behavior”.",
    varies=("algorithm", "part", "sigma", "clip", "lot"),
    points=_points,
    run=_run,
    draw=convergence_drawing.draw,
    finding=convergence_finding.finding,
    seconds=_seconds,
    reduced=("smoke",),
)
