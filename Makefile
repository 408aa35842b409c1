# `make` lists what there is. Everything happens in .venv, which is made on first use; PYTHON= chooses its interpreter.

PYTHON      ?= python3
VENV        := .venv
BIN         := $(VENV)/bin
WORKERS     ?= 2
PIP         := $(BIN)/python -m pip --disable-pip-version-check --quiet
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH       := $(shell sed -n 's/^ *"\(torch==[^"]*\)",*$$/\1/p' pyproject.toml)
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# One set-up at a time, also under make -j.
.NOTPARALLEL:
.PHONY: help demo test test-all goldens check lint layout types layers sizes format gen wheel env clean distclean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.core ## run the main job on an example
	@$(BIN)/nki demo --target trn2

test: $(VENV)/.test ## run the tests, without the longer sweeps
	@$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" $(ARGS)

test-all: $(VENV)/.test ## run all tests, with the longer sweeps and more random examples
	@$(BIN)/python -m pytest -n $(WORKERS) --hypothesis-profile=thorough $(ARGS)

goldens: $(VENV)/.test ## write anew what tests compare with (ARGS="-k name": a part); read the difference
	@NKI_UPDATE_GOLDENS=1 $(BIN)/python -m pytest -q -m golden $(ARGS) $$(grep -rl --include='*.py' 'mark\.golden' tests)
	@git --no-pager diff --stat -- tests

check: lint layout types layers sizes ## lint, layout, types, layers, sizes (make -k check: all, whatever fails)

lint: $(VENV)/.check
	@$(BIN)/ruff check

layout: $(VENV)/.check
	@$(BIN)/ruff format --check --quiet --output-format concise || { echo "make format lays it out"; exit 1; }

types: $(VENV)/.check
	@$(BIN)/mypy

layers: $(VENV)/.check
	@$(BIN)/lint-imports --no-logo

sizes: $(VENV)/.check
	@$(BIN)/python scripts/size_report.py src scripts

format: $(VENV)/.check ## lay the code out, and fix what ruff can fix
	@$(BIN)/ruff check --fix --exit-zero --quiet
	@$(BIN)/ruff format

gen: $(VENV)/.test ## write the generated files anew
	@$(BIN)/python scripts/generate_isa.py
	@$(BIN)/python scripts/evidence_table.py --write
	@$(BIN)/python scripts/concept_pictures.py

wheel: $(VENV)/.test ## build the wheels into dist/
	@$(PIP) wheel . distributions/torch_neuronx --no-deps --no-build-isolation --wheel-dir dist
	@ls dist/*.whl

env: $(VENV)/.test $(VENV)/.check ## set everything up, and run nothing

clean: ## remove what was built and cached, but not .venv
	@rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	@rm -rf $(VENV)

# Set-up is stamped: it is done again only when pyproject.toml changes. The source is installed in place, so that an edit
# needs no installation.

$(BIN)/python:
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "installing nki and what it needs ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.check: pyproject.toml | $(BIN)/python
	@echo "installing nki and the checkers ..."
	@$(PIP) install --editable '.[check]'
	@touch $@ $(VENV)/.core

$(VENV)/.test: pyproject.toml scripts/install_torch.sh | $(BIN)/python
	@echo "installing nki and what the tests need ..."
	@bash scripts/install_torch.sh $(BIN)/python $(TORCH) $(TORCH_INDEX)
	@$(PIP) install --editable '.[test]'
	@$(PIP) install --no-deps --no-build-isolation --editable distributions/torch_neuronx
	@touch $@ $(VENV)/.core
