# The commands of this project. `make reproduce` and `make test` each work first thing in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOWEST := .venv-lowest

.PHONY: help setup reproduce test test-lowest check format docs build clean

help:
	@echo "make reproduce   rebuild the paper's tables and figure in their quick form (sets up .venv first)"
	@echo "make test        run the tests (sets up .venv first)"
	@echo "make test-lowest try the lowest versions that the package allows, in an environment of their own (Python 3.11)"
	@echo "make check       ruff, format check, mypy"
	@echo "make format      let ruff rewrite the sources"
	@echo "make docs        the documentation as a site in docs/_build"
	@echo "make build       wheel and source archive in dist/"

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP)

reproduce: $(STAMP)
	$(BIN)/crcen reproduce all --quick

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-lowest:
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --no-compile -c constraints-lowest.txt -e '.[baselines,databases,excel,onnx,plots,tables]'
	MPLBACKEND=agg $(LOWEST)/bin/python tests/smoke.py

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs docs/_build

build: $(STAMP)
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) $(LOWEST) dist runs docs/_build .pytest_cache .mypy_cache .ruff_cache
