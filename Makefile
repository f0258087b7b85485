# The commands of this project. Each works in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOWEST := .venv-lowest
PREDICT := .venv-predict
# Python versions of `make smoke-python`, found on PATH, in pyenv or in uv; missing ones are skipped.
SMOKE_PYTHONS ?= 3.12 3.13

.PHONY: help setup reproduce test test-lowest test-predict smoke-python check format docs build clean

help:
	@echo "make reproduce   run a quick version of the paper's experiments (sets up .venv first)"
	@echo "make test        run the tests (sets up .venv first)"
	@echo "make test-lowest run tests/smoke.py with the lowest supported versions (Python 3.11)"
	@echo "make test-predict test prediction in an environment without torch and LightGBM"
	@echo "make smoke-python run tests/smoke.py on Python $(SMOKE_PYTHONS), if installed"
	@echo "make check       run ruff, the format check and mypy"
	@echo "make format      format the sources with ruff"
	@echo "make docs        build the documentation in docs/_build"
	@echo "make build       build wheel and source archive in dist/"

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMP)

reproduce: $(STAMP)
	$(BIN)/crcen reproduce all --quick

# Tests of clusters, servers and browsers can time out under load, so failed tests are run again in one process.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal || $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

test-lowest:
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --no-compile -c constraints-lowest.txt -e '.[baselines,databases,excel,onnx,plots,train]'
	MPLBACKEND=agg $(LOWEST)/bin/python tests/smoke.py

# A model of networks and trees is fitted in .venv and predicts in an environment with the core dependencies only.
test-predict: $(STAMP)
	@test -x $(PREDICT)/bin/python || $(PYTHON) -m venv $(PREDICT)
	$(PREDICT)/bin/python -m pip install --quiet -c constraints.txt -e .
	$(BIN)/python tests/smoke.py --fit $(PREDICT)/trial
	$(PREDICT)/bin/python tests/smoke.py --predict $(PREDICT)/trial

smoke-python:
	@for version in $(SMOKE_PYTHONS); do \
	  found=; \
	  for python in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version*/bin/python$$version \
	    "$${UV_PYTHON_INSTALL_DIR:-$$HOME/.local/share/uv/python}"/cpython-$$version*/bin/python$$version; do \
	    if "$$python" -c "" 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "python$$version is not installed: skipped"; continue; fi; \
	  echo "python$$version: $$found"; \
	  test -x .venv-$$version/bin/python || "$$found" -m venv .venv-$$version || exit 1; \
	  .venv-$$version/bin/python -m pip install --quiet -c constraints.txt -e '.[baselines,databases,excel,onnx,plots,train]' || exit 1; \
	  MPLBACKEND=agg .venv-$$version/bin/python tests/smoke.py || exit 1; \
	done

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
	rm -rf $(VENV) $(LOWEST) $(PREDICT) $(SMOKE_PYTHONS:%=.venv-%) dist runs docs/_build .pytest_cache .mypy_cache .ruff_cache
