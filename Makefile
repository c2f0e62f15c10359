# Every target works by itself in a fresh clone: it first sets up what it needs.
#
#   make PYTHON=/some/python3 setup    use this interpreter instead of searching for one
#   make test ARGS='tests/lang -k x'   pass arguments on to pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

VENV  := .venv
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.tidelog-setup
ARGS  ?=
# The limit of a test's time in pyproject.toml is for samples, not for whole runs.
PATIENT := -o faulthandler_timeout=0

# The stamp holds the path that the environment was made for. Besides its time, it is stale if the
# environment was moved, if its interpreter is gone, or if PYTHON names another interpreter.
ORIGIN := 'import sys; print(sys.base_prefix, sys.version)'
ifneq ($(shell cat $(STAMP) 2>/dev/null; test -x $(PY) || echo broken),$(CURDIR))
STALE := stale
else ifneq ($(PYTHON),)
ifneq ($(shell '$(PYTHON)' -c $(ORIGIN) 2>/dev/null),$(shell $(PY) -c $(ORIGIN) 2>/dev/null))
STALE := stale
endif
endif

.PHONY: help setup run test test-long test-faults test-spark-faults lint types warm bench docs clean stale

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## make or update .venv

# A working environment is updated. Otherwise a new one is made from scratch, never over an old one:
# with two interpreters of the same minor version that would give a broken mixture.
$(STAMP): pyproject.toml constraints.txt $(STALE)
	@set -e; \
	recent='import sys; sys.exit(sys.version_info < (3, 11))'; \
	python=''; \
	for candidate in $(if $(PYTHON),'$(PYTHON)',python3 python3.13 python3.12 python3.11); do \
	    if "$$candidate" -c "$$recent" 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	keep=yes; \
	if [ -e $(STAMP) ] && [ "$$(cat $(STAMP))" != '$(CURDIR)' ]; then keep=no; \
	elif ! $(PY) -c "$$recent" 2>/dev/null; then keep=no; \
	elif ! $(PY) -m pip --version >/dev/null 2>&1; then keep=no; \
	elif [ -n '$(PYTHON)' ] && [ "$$('$(PYTHON)' -c $(ORIGIN) 2>/dev/null)" != "$$($(PY) -c $(ORIGIN))" ]; \
	then keep=no; fi; \
	if [ $$keep = no ]; then \
	    if [ -z "$$python" ]; then \
	        echo 'Tidelog needs Python 3.11 or newer, and $(if $(PYTHON),"$(PYTHON)" is not,no python3 on PATH is).' >&2; \
	        echo 'Install one, or name one: make setup PYTHON=/path/to/python3' >&2; \
	        exit 1; \
	    fi; \
	    rm -f $(STAMP); \
	    "$$python" -m venv --clear $(VENV); \
	fi; \
	echo "setting up $(VENV) with $$($(PY) -V)"; \
	PIP_USER=0 $(PY) -m pip install --quiet --disable-pip-version-check \
	    -c constraints.txt -e '.[dev]'; \
	printf '%s\n' '$(CURDIR)' > $(STAMP)

run: setup ## run the main example, a pipeline on Spark, and print its tables
	@rm -rf build/fraud
	$(PY) examples/fraud/run.py build/fraud

# Warm first. Otherwise each test worker compiles the same kernels.
test: warm ## run the tests, and list the slowest
	$(PY) -m pytest --durations=15 --durations-min=2 $(ARGS)

test-long: warm ## run the tests on all random inputs instead of samples: two hours
	TIDELOG_LONG=1 $(PY) -m pytest $(PATIENT) --durations=15 --durations-min=2 $(ARGS)

test-faults: warm ## kill writers 1000 times, flip 10000 bits, make every file call fail: an hour
	TIDELOG_KILLS=1000 TIDELOG_FLIPS=10000 TIDELOG_FAULTS_EVERY=1 TIDELOG_DURABLE_PROGRAMS=400 \
	    $(PY) -m pytest $(PATIENT) tests/faults tests/durable $(ARGS)

test-spark-faults: warm ## kill 50 drivers and 20 executors of pipelines, and a machine: 30 minutes
	TIDELOG_LONG=1 TIDELOG_KILLS=50 TIDELOG_EXECUTOR_KILLS=20 $(PY) -m pytest $(PATIENT) -n 0 -s \
	    tests/spark/test_kills.py tests/spark/test_cluster.py $(ARGS)

lint: setup ## check style and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: setup ## check the types
	$(PY) -m mypy

warm: setup ## compile the kernels
	$(VENV)/bin/tidelog warm

bench: setup ## run the benchmarks; ARGS='--scale full --data DIR' for full size
	$(VENV)/bin/tidelog bench $(ARGS)

docs: setup ## run only the documentation tests
	$(PY) -m pytest tests/docs $(ARGS)

clean: ## remove build output, caches and .venv
	rm -rf build dist $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
	find . -name .git -prune -o -type f \( -name '*.nbi' -o -name '*.nbc' \) -exec rm -f {} +
