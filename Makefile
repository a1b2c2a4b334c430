# Needs git, make and Python 3.11 or newer with its venv module. Everything else is put into .venv, uv included.

# Make's own variables beat the environment here, so that a shell's settings cannot switch telemetry on.
export DAGSTER_DISABLE_TELEMETRY := 1
export GX_ANALYTICS_ENABLED := false
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/.venv
# Without bytecode every start compiles some thousand modules anew: it halves the time of a small audit.
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE
# The shell may have another environment active; it is not the one meant here.
unexport VIRTUAL_ENV

PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV_VERSION := 0.13.9
BIN := .venv/bin
# In a folder of its own: `uv sync` removes from the environment what the lock does not name.
UV := .venv/uv-$(UV_VERSION)/bin/uv
SYNCED := .venv/.synced
SYNCED_UI := .venv/.synced-ui

WEEK := examples/week
FLEET := examples/fleet.toml
OUT := tokenworks-out

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv uv-path week test test-slow fuzz check bench fit accuracy docs ui lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(SYNCED) ## set up .venv from uv.lock (the other targets do so by themselves)

# For scripts: where the pinned uv is.
uv-path: $(UV)
	@echo "$(CURDIR)/$(UV)"

$(UV):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: none found on PATH" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: $(PYTHON) is older; say which with PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	"$(PYTHON)" -m venv .venv/bootstrap
	.venv/bootstrap/bin/python -m pip install --quiet --disable-pip-version-check \
		--target .venv/uv-$(UV_VERSION) --upgrade uv==$(UV_VERSION)
	rm -rf .venv/bootstrap

# With the extra that the tests need.
$(SYNCED): pyproject.toml uv.lock $(UV)
	$(UV) sync --frozen --quiet --extra postgres
	@touch $@

$(SYNCED_UI): $(SYNCED)
	$(UV) sync --frozen --quiet --extra postgres --extra ui
	@touch $@

$(WEEK): | $(SYNCED)
	rm -rf $@.part
	$(BIN)/tokenworks synth --out $@.part
	mv $@.part $@

week: $(SYNCED) | $(WEEK) ## make the example week if absent, audit it, and say where the report is
	$(BIN)/tokenworks audit $(WEEK)/gateway $(WEEK)/telemetry --fleet $(FLEET) --out $(OUT)
	@echo "The report: $(CURDIR)/$(OUT)/audit.html"

test: $(SYNCED) ## run the quick tests
	$(BIN)/pytest -n 2

test-slow: $(SYNCED) ## run the slow tests: end to end, browser, large inputs
	$(BIN)/pytest -n 2 -m slow

fuzz: $(SYNCED) ## damage every sample in 100,000 ways and read what comes out
	$(BIN)/python tests/fuzz.py

check: $(SYNCED) ## check format, lint, types and import rules; change nothing
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(SYNCED) ## run the benchmarks; each prints ratios against its yardstick
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python "$$script"; done

# The matrices are small: threads of a library for large ones only wait for each other.
fit: $(SYNCED) ## fit the models of speed and power to the measured points again
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pipelines.sizing.fit

accuracy: $(SYNCED) ## compare predictions with measured points of models that the fit had not seen
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/accuracy.py

docs: $(SYNCED) ## write the generated reference pages again
	$(BIN)/python -m pipelines.reference_docs

ui: $(SYNCED_UI) ## open the pipeline in Dagster's web page
	VIRTUAL_ENV="$(CURDIR)/.venv" $(BIN)/dg dev

lock: $(UV) ## renew uv.lock within the bounds of pyproject.toml
	$(UV) lock --upgrade

clean: ## remove the environment, caches and results; keep examples
	rm -rf .venv $(OUT) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .tmp_dagster_home_*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
