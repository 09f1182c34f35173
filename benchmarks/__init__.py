"""Benchmarks: ours beside its rivals, in one process, taking turns. `python -m benchmarks NAME --json`."""
