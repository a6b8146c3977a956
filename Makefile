# Everything here needs git, make and Python 3.11 to 3.14, and no special rights.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(VENV)/bin/uv
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help install demo demo-mem0 test test-fast test-all life chaos workers dev audit check images clean
# Compiled tests are kept, even if the environment forbids it.
export PYTHONDONTWRITEBYTECODE :=

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/.installed: pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || { echo "Python 3.11 to 3.14 is needed; set PYTHON=..."; exit 1; }
	@test -x $(UV) || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet uv; }
	@$(UV) sync --frozen --inexact --quiet
	@touch $@

install: $(VENV)/.installed ## install everything in .venv, with the command `consolidation`

demo: $(VENV)/.installed ## import two projects, consolidate them, show what happened
	@$(BIN)/consolidation demo

demo-mem0: $(VENV)/.installed ## consolidate memories where mem0 keeps them, and undo it
	@$(BIN)/python examples/demo_mem0.py

dev: $(VENV)/.installed ## open the Dagster UI on http://localhost:3000
	@$(BIN)/consolidation dev

test: $(VENV)/.installed ## run all tests but the slow ones
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-fast: $(VENV)/.installed ## run the tests that need no database
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'not slow and not database'

test-all: $(VENV)/.installed ## run all tests, with all examples of the property tests
	@CONSOLIDATION_TESTS=all $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m ''

life: $(VENV)/.installed ## test 1,000 random sequences of actions on a project
	@CONSOLIDATION_LIFE_EXAMPLES=1000 $(BIN)/python -m pytest consolidation_pipeline_tests/service/test_state_machine.py

chaos: $(VENV)/.installed ## write, search, run and undo for five minutes while processes and the database fail
	@CONSOLIDATION_CHAOS_SECONDS=$${CONSOLIDATION_CHAOS_SECONDS:-300} $(BIN)/python -m pytest -s -m '' consolidation_pipeline_tests/chaos

workers: $(VENV)/.installed ## test that two workers share runs and that killing one loses nothing
	@$(BIN)/python deploy/two_workers.py

audit: $(VENV)/.installed ## look up known vulnerabilities of the dependencies at osv.dev
	@$(UV) audit --frozen --preview-features audit-command

check: $(VENV)/.installed ## lint, types, import contracts, definitions
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/dg check defs

images: $(VENV)/.installed ## renew the screenshots in docs/images (needs Chromium)
	@$(BIN)/python docs/images/make_images.py

clean: ## remove the environment and the embedded data
	@rm -rf $(VENV) .consolidation
