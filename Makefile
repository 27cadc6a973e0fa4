# Everything runs in one virtual environment, made on first use.
# VENV=... puts it elsewhere; PYTHON=... makes it from another interpreter.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# The engines' environments go into this folder.
ENGINES ?= .

.DEFAULT_GOAL := help
.PHONY: help run test deep lint format types imports proofs tlc fairness package coverage mutants clean
.PHONY: test-engines test-transformers test-vllm

help:  ## List what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.ready  ## Schedule a generated stream of several users to its end
	@$(BIN)/batchproof run

test: $(VENV)/.ready  ## Run the test suite
	$(BIN)/python -m pytest -n auto

deep: $(VENV)/.ready  ## Run the tests that take minutes
	$(BIN)/python -m pytest -m deep

lint: $(VENV)/.ready  ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.ready  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.ready  ## Check types with mypy and pyright
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/.ready  ## Check that imports go one way
	$(BIN)/lint-imports

proofs: $(VENV)/.ready  ## Visit every reachable state of the specification, and of the shipped code
	$(BIN)/batchproof check
	$(BIN)/batchproof check --target scheduler

tlc: $(VENV)/.ready  ## Let TLC, TLA+'s model checker, visit the same states
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tlc]'
	$(BIN)/python -m pytest -m 'tlc and not deep' tests/tlaplus

fairness: $(VENV)/.ready  ## Measure fair-lane in full, in minutes: tables, and which goals are met
	$(BIN)/python -m batchproof.sched.bench.fairness --seeds 10 --trials 600

package: $(VENV)/.ready  ## Build wheel and sdist, and test the installed wheel
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m pytest -m packaging

coverage: $(VENV)/.ready  ## Show the branch coverage of the suite; of COVERED, it must be whole
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -p no:xdist
	$(BIN)/coverage report --omit="$(COVERED)"
	$(BIN)/coverage report --include="$(COVERED)" --fail-under=100

# What may happen, what must hold, and the scheduler's core.
CORE := acceptance accounts backpressure batch blocks config errors executor expiry inference_stub \
  latency lifecycle metrics observer planning request roster scheduler snapshot waiting
COVERED = spec/*,invariants/*,sched/policy/*$$(printf ',sched/%s.py' $(CORE))

mutants: $(VENV)/.ready  ## Change the code in one place after another; some test must fail, each time
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,mutation]'
	PYTHONPATH=tests $(BIN)/python -m mutants.table

test-engines: test-transformers test-vllm  ## Run the adapters' tests on real engines

# Each engine has an environment of its own, made anew when its versions or Python's change.
# torch goes first, with what it needs; then exactly the versions listed.
test-transformers test-vllm: test-%: constraints-%.txt
	@env=$(ENGINES)/.venv-engines-$*-$$({ $(PYTHON) -V; cat $<; } | cksum | cut -d ' ' -f 1); \
	if [ ! -e $$env/.ready ]; then \
	  rm -rf $(ENGINES)/.venv-engines-$*-* && $(PYTHON) -m venv $$env && \
	  $$env/bin/python -m pip install --quiet --disable-pip-version-check -c $< torch && \
	  $$env/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $< && \
	  touch $$env/.ready || exit 1; \
	fi; \
	PYTHONPATH=src OMP_NUM_THREADS=1 \
	  $$env/bin/python -W default -m pytest -W default -m engines $(ENGINE_TESTS_$*)

ENGINE_TESTS_transformers := tests/adapters/test_huggingface*.py
ENGINE_TESTS_vllm := tests/adapters/test_vllm*.py

clean:  ## Remove what was built
	rm -rf $(VENV) .venv-engines-* dist htmlcov .coverage

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "batchproof needs Python 3.11 or newer: set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
