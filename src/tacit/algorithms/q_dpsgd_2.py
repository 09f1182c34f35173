"""Q-DPSGD-2: Q-DPSGD-1 for noise that lies on a grid, to which every record was rounded.

    θ⁺ = θ + γ(W Q(θ) − Q(θ)) − η·step(ḡ(θ)),   ḡ = (Σ round(clip(∇ℓ)) + discrete Gaussian noise)/L

Ding, Liang, Bi & Pan, *Differentially Private and Communication Efficient Collaborative Learning*, AAAI 2021. Rounding and noise are the
oracle's: the run needs `Privacy(noise=Discrete(...))`, or `--noise discrete`, which counts what rounding adds to a record's influence.
By the paper's abstract an agent first quantises its model and then adds discrete Gaussian noise: a rounded sum can then differ by a whole step in
every coordinate because of one record. Here every record's vector is rounded before the sum.
"""

from dataclasses import dataclass

from tacit.algorithms.q_dpsgd import QDPSGD1


@dataclass(frozen=True, kw_only=True)
class QDPSGD2(QDPSGD1):
    """Decentralized SGD with quantised models, records rounded to a grid and discrete noise."""
