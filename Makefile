# The commands of this repository. `make run` and `make test` need nothing but make, git and a Debian-like machine.

BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test test-all lint bench soak lock clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

setup: ## install what is missing: system packages (when root), .venv from the lock file
	@scripts/setup

run: setup ## set up, with an agent to talk to, then start the daemon on 127.0.0.1:8080
	@$(BIN)/holdfast agents install pi || echo "make: going on without a real agent" >&2
	@exec $(BIN)/holdfast up

test: ## set up, then every check and every test
	@scripts/setup --test
	@$(MAKE) --no-print-directory lint
	$(BIN)/python scripts/test

test-all: ## the same, and what only repeats it elsewhere or for longer: every environment, every agent, every kill
	@TEST_WHOLE_SUITE=1 TEST_CRASH_POINTS=all $(MAKE) --no-print-directory test

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## the benchmarks, printed as ratios
	PYTHONPATH=src:tests $(BIN)/python -m bench

soak: setup ## random faults under real threads: SOAK_SECONDS=600, SOAK_SEED=…
	PYTHONPATH=src:tests $(BIN)/python -m support.daemons.soak

lock: setup ## resolve pyproject.toml into requirements.lock again
	scripts/lock

clean: ## remove what these commands made in this directory
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
