# Two commands: `make run` (the embedded default study, to finished tables) and `make test` (all tests).
# Everything is installed into .venv from the pins in constraints.txt; a second call reinstalls nothing.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
STAMPS := .venv/stamps
# Keeps matplotlib's font cache inside the clone.
export MPLCONFIGDIR ?= $(CURDIR)/.venv/matplotlib
export RAY_USAGE_STATS_ENABLED ?= 0

.PHONY: run test check bench chaos properties test-slurm test-cluster clean

run: $(STAMPS)/core
	$(BIN)/python -m sweep.run

test: $(STAMPS)/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(STAMPS)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMPS)/dev
	$(BIN)/python -m benchmarks

# Kills, damages and faults against a tiny study; a failure prints the command that repeats it.
chaos: $(STAMPS)/dev
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),30) --seed $(or $(SEED),0)

# Ten thousand odd studies, settings, records, leases, weights and arrays.
properties: $(STAMPS)/dev
	OMP_NUM_THREADS=1 ROBUSTSWEEP_EXAMPLES=$(or $(EXAMPLES),720) $(BIN)/python -m pytest tests/properties --hypothesis-show-statistics

test-slurm: $(STAMPS)/dev
	tests/slurm/run.sh

# Six kills of one trial; a cluster that scales from nothing and back.
test-cluster: $(STAMPS)/dev
	$(BIN)/python -m tests.shows.six_kills
	$(BIN)/python -m tests.shows.autoscaling

clean:
	rm -rf .venv build ./*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/core: pyproject.toml constraints.txt
	@echo "==> creating .venv and installing robustsweep (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt --editable .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: $(STAMPS)/core
	@echo "==> installing the test tools"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt --editable '.[dev,cluster,dashboard]'
	@touch $@
