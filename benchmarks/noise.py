"""Noise: normals of ChaCha20, of the fast source, of torch and numpy; and adding it to sums, on the grid. Nanoseconds each."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.report import Report, Row
from benchmarks.timing import take_turns, threads
from tacit.privacy import Fast, Secret, Sources
from tacit.privacy.noise import GridNoise

ROWS, WIDTH = 8, 38_424
COUNT = ROWS * WIDTH
SIGMA, CLIP, LOT = 7.19, 10.0, 256.0


def run(turns: int) -> Report:
    """Time blocks as long as eight agents' gradients; what leaves is float32."""
    report = Report("noise", f"{COUNT:,} numbers; nanoseconds a number")
    secret, fast = Secret().make(1)[0], Fast(0).make(1)[0]
    philox = np.random.Generator(np.random.Philox(0))
    sides: dict[str, Callable[[], object]] = {
        "ours": _released(Secret()),
        "fast": _released(Fast(0)),
        "added_off_the_grid": _added_off_the_grid(),
        "normals_secret": lambda: secret.next().normals(COUNT),
        "normals_fast": lambda: fast.next().normals(COUNT),
        "numpy_philox": lambda: philox.standard_normal(COUNT),
        "torch_float64": lambda: torch.randn(COUNT, dtype=torch.float64),
        "torch_float32": lambda: torch.randn(COUNT),
    }
    with threads(1):
        times = take_turns(sides, turns=4 * turns)
    report.add(1, [Row(side, times.median(side) / COUNT * 1e9, "ns") for side in sides], times.ratios())
    report.note(
        "ours, fast: normals made, added to sums and rounded to the grid; added_off_the_grid: secret normals of 53-bit "
        "uniforms, added in float64 and not rounded to a grid, as was done before; the rest: making normals alone"
    )
    return report


def _released(sources: Sources) -> Callable[[], object]:
    noise = GridNoise(
        clips=[CLIP] * ROWS, noise_multipliers=[SIGMA] * ROWS, lot_sizes=[LOT] * ROWS, device=torch.device("cpu")
    )
    made, sums, out = sources.make(ROWS), _sums(), torch.empty(ROWS, WIDTH)

    def side() -> None:
        noise.release(sums, [source.next() for source in made], [], slice(0, ROWS), out)

    return side


def _added_off_the_grid() -> Callable[[], object]:
    made, sums, out = Secret().make(ROWS), _sums(), torch.empty(ROWS, WIDTH)
    half = WIDTH // 2

    def side() -> None:
        for row, source in enumerate(made):
            words = torch.from_numpy(source.next().words(WIDTH).view("<i8"))
            uniform = words.bitwise_right_shift(11).bitwise_and_(2**53 - 1).double()
            radius = uniform[:half].add(1.0).mul_(2.0**-53).log_().mul_(-2.0).sqrt_()
            angle = uniform[half:] * (2.0**-53 * 2.0 * np.pi)
            torch.cos(angle, out=uniform[:half]).mul_(radius)
            torch.sin(angle, out=uniform[half:]).mul_(radius)
            out[row] = sums[row].add_(uniform, alpha=SIGMA * CLIP).div_(LOT)

    return side


def _sums() -> Tensor:
    return 50 * torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
