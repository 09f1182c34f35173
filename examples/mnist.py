"""The paper's MNIST setting: ten agents, one digit each, the paper's ConvNet, published step sizes for ε=1.

    TACIT_DATA=/path/to/data python examples/mnist.py --rounds 200 --noise-multiplier 7.19
    python examples/mnist.py --rounds 2000 --epsilon 1 --graph ring --only dsgt

`central` is DP-SGD on the pooled data with its published settings (C=1, momentum 0.9, the same lot size). `apart` is the
consensus distance: the root mean square distance of the agents' models from their average.
"""

import argparse
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import tacit
from tacit.algorithms import Algorithm

SETTINGS: dict[str, tuple[Algorithm[Any], float, float | tacit.LogSpaced]] = {
    "central": (tacit.SGD(step=tacit.Momentum(0.9)), 1.0, 0.194),
    "dsgd": (tacit.DSGD(), 10.0, tacit.LogSpaced(0.0365, 0.005)),
    "dsgt": (tacit.DSGT(), 10.0, tacit.LogSpaced(0.0602, 0.005)),
    "dinno": (tacit.DiNNO(), 10.0, tacit.LogSpaced(0.01, 0.0005)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    noise = parser.add_mutually_exclusive_group(required=True)
    noise.add_argument("--noise-multiplier", type=float, help="σ of every agent")
    noise.add_argument("--epsilon", type=float, help="calibrate σ to this ε at δ=1e-5")
    parser.add_argument("--graph", default="complete", help="complete, ring, star, ...")
    parser.add_argument("--split", type=float, default=1.0, help="t of A(t); 1 gives every agent a digit of its own")
    parser.add_argument("--only", choices=SETTINGS, nargs="+", default=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    mnist = tacit.data.load("mnist")
    agents = mnist.split(10, tacit.data.ByClass(t=options.split), seed=options.seed)
    table = Table("algorithm", "σ", "ε", "validation", "test", "worst agent", "apart", "seconds")
    for name in options.only:
        algorithm, clip, lr = SETTINGS[name]
        began = time.perf_counter()
        result = tacit.train(
            algorithm,
            model=lambda: tacit.models.convnet(mnist.input_shape, 10),
            data=agents.pooled() if name == "central" else agents,
            graph=None if name == "central" else tacit.graphs.build(options.graph, 10, seed=options.seed),
            privacy=tacit.Privacy(
                epsilon=options.epsilon,
                noise_multiplier=options.noise_multiplier,
                delta=1e-5,
                clip=clip,
                lot_size=256,
            ),
            rounds=options.rounds,
            lr=lr,
            seed=options.seed,
            evaluate_every=max(1, options.rounds // 8),
            progress=True,
        )
        test = result.evaluate().accuracy
        assert test is not None
        worst = max(result.guarantees(), key=lambda guarantee: guarantee.epsilon)
        table.caption = f"σ and ε are the largest of all agents', for example: {worst}"
        table.add_row(
            name,
            f"{max(result.plan.noise_multipliers):.4g}",
            f"{worst.epsilon:.3f}",
            f"{result.accuracy.mean():.1%}",
            f"{test.mean():.1%}",
            f"{test.min():.1%}",
            f"{result.consensus_distance:.3f}",
            f"{time.perf_counter() - began:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
