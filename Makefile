# `make` lists what there is. Everything happens in .venv, which is made on first use; PYTHON= chooses its interpreter.
# Versions come from requirements-dev.lock; LOCK= takes the newest that pyproject.toml allows.

PYTHON      ?= python3
VENV        := .venv
BIN         := $(VENV)/bin
WORKERS     ?= 2
PIP         := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK        ?= requirements-dev.lock
INSTALL     := $(PIP) install $(if $(LOCK),--constraint $(LOCK))
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH       := $(shell sed -n 's/^ *"\(torch==[^"]*\)",*$$/\1/p' pyproject.toml)
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

# Some images switch bytecode off; here hundreds of processes would compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE

# One set-up at a time, also under make -j.
.NOTPARALLEL:
.PHONY: help demo test test-all test-of goldens replay docs times page-check page-test check lint layout types layers sizes \
        format gen wheel wheel-try house lock hooks env clean distclean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-10s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.core ## run the main job on an example
	@$(BIN)/nki demo --target trn2

test: $(VENV)/.test ## run the tests, without the longer sweeps
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-all: $(VENV)/.test ## run all tests, with the longer sweeps and more random examples
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --hypothesis-profile=thorough $(ARGS)

test-of: $(VENV)/.test ## run the tests of a source file, FILE=src/nki/...; of what was changed without FILE (ALL=1: more)
	@tests="$$($(BIN)/python scripts/tests_of.py $(if $(ALL),--all) $(FILE))" && \
		$(BIN)/python -m pytest -q -p no:cacheprovider -m "not slow" $(ARGS) $$tests

goldens: $(VENV)/.test ## write anew what tests compare with (ARGS="-k name": a part); read the difference
	@NKI_UPDATE_GOLDENS=1 $(BIN)/python -m pytest -q -m golden $(ARGS) $$(grep -rl --include='*.py' 'mark\.golden' tests)
	@git --no-pager diff --stat -- tests

replay: $(VENV)/.test ## compare kernels, models and errors with what was recorded of them (ARGS="--only NAME")
	@$(BIN)/python scripts/replay.py check $(ARGS)

house: $(VENV)/.test ## print the figures of the source tree, and which way calls take through it
	@$(BIN)/python scripts/house.py $(ARGS)
	@$(BIN)/python scripts/house.py walks $(ARGS)

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
	@$(BIN)/python scripts/library_pages.py

wheel: $(VENV)/.test ## build the wheels into dist/
	@$(PIP) wheel . distributions/torch_neuronx distributions/nkilib distributions/neuronxcc --no-deps --no-build-isolation --wheel-dir dist
	@ls dist/*.whl

wheel-try: $(VENV)/.test wheel ## install the built wheel into an empty environment, and run the demo there
	@rm -rf build/try && $(BIN)/python -m venv build/try
	@build/try/bin/python -m pip --disable-pip-version-check --quiet install $(if $(LOCK),--constraint $(LOCK)) \
		"$$(ls -t dist/nki-*.whl | head -1)"
	@cd build/try && env -u PYTHONPATH bin/nki demo --target trn2

docs: $(VENV)/.test ## run what the documents say, and look where their links and paths lead
	@$(BIN)/python -m pytest -n $(WORKERS) tests/docs tests/packaging/test_contributing.py $(ARGS)

times: $(VENV)/.test ## compile whole the kernels whose times are claimed, compare with the record, and show schedules
	@$(BIN)/python -m pytest -m slow tests/timing $(ARGS)
	@$(BIN)/python benchmarks/schedule_quality.py

page-check: scripts/page/node_modules ## lint and type-check the explorer's scripts; needs Node and npm
	@npm run --silent --prefix scripts/page types
	@npm run --silent --prefix scripts/page lint

page-test: $(VENV)/.test ## run the tests of the explorer, with a browser and Node
	@$(BIN)/python -m pytest -n $(WORKERS) tests/explorer $(ARGS)

lock: $(VENV)/.dev ## lock versions for all Pythons: what is locked stays if it can; LOCK= takes the newest
	@mkdir -p build && rm -f build/lock
	@$(BIN)/uv pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 --all-extras --no-header --no-annotate \
		$(if $(LOCK),--constraint $(LOCK)) pyproject.toml --output-file build/lock
	@{ echo "# Versions that are tested, for Python 3.11 and later. Written by \`make lock\`; torch is in pyproject.toml."; \
		grep -vE '^(torch|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+)==' build/lock; } > requirements-dev.lock

hooks: $(VENV)/.dev $(VENV)/.check ## install the hooks of .pre-commit-config.yaml into this clone
	@$(BIN)/pre-commit install

env: $(VENV)/.test $(VENV)/.check ## set everything up, and run nothing

clean: ## remove what was built and cached, but not .venv
	@rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	@rm -rf $(VENV) scripts/page/node_modules

# Set-up is stamped: it is done again only when a pyproject.toml changes. The source is installed in place, so that an edit
# needs no installation.

$(BIN)/python:
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml $(LOCK) | $(BIN)/python
	@echo "installing nki and what it needs ..."
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.check: pyproject.toml $(LOCK) | $(BIN)/python
	@echo "installing nki and the checkers ..."
	@$(INSTALL) --editable '.[check]'
	@touch $@ $(VENV)/.core

$(VENV)/.test: pyproject.toml $(wildcard distributions/*/pyproject.toml) $(LOCK) scripts/install_torch.sh | $(BIN)/python
	@echo "installing nki and what the tests need ..."
	@bash scripts/install_torch.sh $(BIN)/python $(TORCH) $(TORCH_INDEX)
	@$(INSTALL) --editable '.[test]'
	@$(PIP) install --no-deps --no-build-isolation --editable distributions/torch_neuronx --editable distributions/nkilib
	@touch $@ $(VENV)/.core

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing what hooks and locks need ..."
	@$(PIP) install --editable '.[dev]'
	@touch $@

scripts/page/node_modules: scripts/page/package.json scripts/page/package-lock.json
	@echo "installing the checkers of the explorer's scripts ..."
	@npm ci --silent --prefix scripts/page --no-audit --no-fund
	@touch $@
