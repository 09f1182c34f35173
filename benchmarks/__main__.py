"""`python -m benchmarks NAME [--json] [--turns N]`."""

import argparse
import importlib
import json

NAMES = ("step", "audit", "scale", "resnet", "rounds", "limit", "noise", "masks", "bands", "scores", "cluster", "peer")


def main() -> None:
    """Run one benchmark, or all of them, and show what came of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*NAMES, "all"])
    parser.add_argument("--json", action="store_true", help="print one JSON document, and nothing else")
    parser.add_argument("--turns", type=int, default=7, help="how often every side is timed")
    given = parser.parse_args()
    documents = {}
    for name in NAMES if given.name == "all" else (given.name,):
        report = importlib.import_module(f"benchmarks.{name}").run(given.turns)
        documents[name] = report.to_json()
        if not given.json:
            report.show()
    if given.json:
        print(json.dumps(documents if given.name == "all" else documents[given.name], indent=1))


if __name__ == "__main__":
    main()
