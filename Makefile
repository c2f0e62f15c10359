# Every target works from a fresh clone, each alone: what it needs is set up first.
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

# The stamp holds the path the environment was made for. It is out of date, whatever the times of
# the files, if the environment was moved, if its interpreter is gone, or if PYTHON names another.
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

setup: $(STAMP) ## make .venv, or bring it up to date

# An environment that works is kept and brought up to date, else it is made anew. Never is one made
# over another: with two interpreters of one minor version that gives a broken mixture.
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
	$(PY) examples/fraud/generate.py build/fraud
	$(VENV)/bin/tidelog pipeline run build/fraud/fraud.toml --once
	$(PY) examples/fraud/show.py build/fraud

test: setup ## run the tests; the slowest are listed
	$(PY) -m pytest --durations=15 --durations-min=2 $(ARGS)

test-long: setup ## compare the kernel with the reference on 5000 random programs, and each functor
	TIDELOG_PROGRAMS=5000 TIDELOG_EXAMPLES=400 $(PY) -m pytest \
	    tests/maintain/test_against_reference.py tests/maintain/test_functors.py $(ARGS)

test-faults: setup ## kill writers 1000 times, turn 10000 bits, let every call fail: an hour
	TIDELOG_KILLS=1000 TIDELOG_FLIPS=10000 TIDELOG_FAULTS_EVERY=1 TIDELOG_DURABLE_PROGRAMS=400 \
	    $(PY) -m pytest tests/faults tests/durable $(ARGS)

test-spark-faults: setup ## kill the driver of a pipeline 50 times in mid-epoch: ten minutes
	TIDELOG_KILLS=50 $(PY) -m pytest -n 0 tests/spark/test_kills.py $(ARGS)

lint: setup ## check style and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: setup ## check the types
	$(PY) -m mypy

# Before the tests, else each of their workers compiles the same kernels.
warm: setup ## compile the kernels
	$(VENV)/bin/tidelog warm

bench: setup ## measure; ARGS='--scale full --data DIR' for the real sizes
	$(VENV)/bin/tidelog bench $(ARGS)

docs: setup ## run only the documentation tests
	$(PY) -m pytest tests/docs $(ARGS)

clean: ## remove what was built, the caches and .venv
	rm -rf build dist $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
	find . -name .git -prune -o -type f \( -name '*.nbi' -o -name '*.nbc' \) -exec rm -f {} +
