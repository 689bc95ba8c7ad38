# Linkscale: the main path (`make demo`) and everything CI runs (`make test`).
# Needs Python 3.11 or newer as `python3` (or PYTHON=...) and nothing else.

PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# The versions that the oracles are checked with. Where the default torch is a multi-gigabyte CUDA build, point pip at
# an index with CPU builds first; the tests need no GPU.
TORCH := torch==2.13.0
TRANSFORMERS := transformers==5.24.0
# Only its Python runs here, on CPU. Without dependencies, as those would bring a CUDA build of torch.
MEGATRON_CORE := megatron-core==0.16.1

.PHONY: help demo test lint format docs docs-pages evidence clean

help:
	@echo 'make demo      plan Llama-3.1-405B on 16,384 H100s (installs into .venv first, without torch)'
	@echo 'make test      everything CI checks: lint, types, import contract, docs, tests'
	@echo 'make lint      ruff, mypy and the import contract alone'
	@echo 'make format    let ruff format the code and mend what it can'
	@echo 'make docs      build the documentation into docs/_build/html; warnings are errors'
	@echo 'make docs-pages  run the console blocks of the docs and write what they print'
	@echo 'make evidence  measure speed again, with RUNS=training_runs.csv accuracy too; write docs/evidence/*.json'
	@echo 'make clean     remove .venv, caches and build output'

demo: $(VENV)/core.stamp
	$(BIN)/linkscale plan llama-3.1-405b dgx-h100:16384 --global-batch 2048 --seq 8192

test: lint docs
	$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/test.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/test.stamp
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

docs-pages: $(VENV)/test.stamp
	$(BIN)/python docs/refresh.py

# Accuracy needs the table of published runs, which is not part of the repository.
evidence: $(VENV)/test.stamp
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/startup.py
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/search/speed.py
ifdef RUNS
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/accuracy/first.py '$(RUNS)' --evidence
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/accuracy/fit_shipped.py '$(RUNS)' --families --evidence
else
	@echo 'accuracy is not measured: pass RUNS=path/to/training_runs.csv'
endif
	PYTHONPATH=benchmarks $(BIN)/python benchmarks/tables.py
	$(BIN)/python -m pytest -n $(JOBS) -m evidence $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp a set of packages; pyproject.toml decides when it is out of date.
$(VENV)/core.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Linkscale needs Python 3.11 or newer; pass PYTHON=/path/to/python3.11'; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/test.stamp: pyproject.toml Makefile | $(VENV)/core.stamp
	$(PIP) --editable '.[fit,test,dev,docs]' '$(TORCH)' '$(TRANSFORMERS)'
	$(PIP) --no-deps --only-binary :all: '$(MEGATRON_CORE)' || \
		echo 'there is no wheel of $(MEGATRON_CORE) for this Python and platform: its oracles will skip'
	touch $@
