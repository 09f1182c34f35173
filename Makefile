PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: demo test test-slow check clean

demo: $(READY)  ## train ten agents privately on embedded data
	@$(BIN)/python examples/demo.py

test: check  ## lint, types and every test but the slow ones
	@$(BIN)/python -m pytest -m "not slow"

test-slow: $(READY)  ## the tests that take minutes
	@$(BIN)/python -m pytest -m slow

check: $(READY)  ## lint and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@echo "making the environment in $(VENV); the first time this takes some minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
