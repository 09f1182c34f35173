PYTHON ?= python3
# One thread for each test process, and none that waits for another by spinning.
THREADS := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
# Old instructions, with which sums are rounded in another order.
ELSEWHERE := MKL_CBWR=COMPATIBLE ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-elsewhere audit-quick check docs bench clean

demo: $(READY)  ## train ten agents privately on embedded data
	@$(BIN)/python examples/demo.py

test: check  ## lint, types and every test but the slow ones
	@$(THREADS) $(BIN)/python -m pytest $(PYTEST_OPTIONS) -m "not slow" -n auto --dist worksteal

test-slow: $(READY)  ## the tests that take minutes each
	@$(THREADS) $(BIN)/python -m pytest $(PYTEST_OPTIONS) -m slow -n auto --dist worksteal

test-elsewhere: $(READY)  ## as `make test`, with the rounding of another kind of processor
	@$(ELSEWHERE) $(MAKE) --no-print-directory test

audit-quick: $(READY)  ## attack sound and faulty systems, every rule with every fault; a quarter of an hour
	@$(THREADS) TACIT_AUDIT_RUNS=1000 $(BIN)/python -m pytest tests/audit/test_audit_faults.py -n auto --dist worksteal -rP

check: $(READY)  ## lint and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(READY)  ## every benchmark, beside Opacus; about half an hour
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@$(BIN)/python -m benchmarks all

docs: $(READY)  ## the documentation site, in site/
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs site
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@echo "making the environment in $(VENV); the first time this takes some minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
