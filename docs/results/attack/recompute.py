"""Judges the scores of this page again and prints its finding: `python docs/results/attack/recompute.py`."""

import json
from pathlib import Path

from tacit.experiments import load_experiment

kept = json.loads(Path(__file__).with_name("scores.json").read_text())
rows = [
    {"algorithm": algorithm, **one["settings"], "present": side == "present", "score": score}
    for algorithm, one in kept.items()
    for side in ("absent", "present")
    for score in one[side]
]
print(load_experiment("attack").finding(rows))
