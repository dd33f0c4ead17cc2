# Everything works from a clean clone: Python 3.10 or later, make, git and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SCENARIO ?= single
SEED ?= 0

.PHONY: demo gpu-acceptance test test-sglang lint types install clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/fingerprint demo --scenario $(SCENARIO) --seed $(SEED)

test: lint types
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

# The real SGLang on a processor: minutes of launches, and some 3 GB that are installed once.
test-sglang: install
	PYTHON=$(PYTHON) tests/sglang/install.sh .cache/sglang
	$(BIN)/python -m pytest tests/sglang $(ARGS)

gpu-acceptance: install
	$(BIN)/python -m benchmarks.gpu_acceptance $(ARGS)

bench-%: install
	$(BIN)/python -m benchmarks.bench_$* $(ARGS)

clean:
	rm -rf $(VENV) demo-out build *.egg-info .mypy_cache .ruff_cache .pytest_cache
