# `make setup` once; then any of the others. Nothing outside this folder is changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.agym-setup
SERVERS := $(VENV)/mcp
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
NPM_CI := $(BIN)/npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --fetch-retries 5 --loglevel error
TYPED := build/typed
UNTYPED := --allow-subclassing-any --no-warn-return-any --no-warn-unused-ignores

# tests start hundreds of processes, which need not compile the package anew each time
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-quick check lint types imports docs docs-check bench harnesses gpu-kit wheel clean

help:  ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: $(STAMP) $(SERVERS)/.complete  ## builds .venv from locks, fetches what pages draw with; nothing to do the second time

$(STAMP): locks/cpu.lock pyproject.toml viewer/package-lock.json
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "agym needs Python 3.11 or newer as '$(PYTHON)': install it, or say make PYTHON=/path/to/python3.11 setup" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "this Python cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --no-deps -r locks/cpu.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	$(NPM_CI) --prefix viewer
	@touch $@

# servers of others, which tests play with, apart from what is installed here: each has pins of its own
$(SERVERS)/.complete: $(STAMP) $(wildcard locks/mcp/*)
	$(BIN)/python -m venv --clear --without-pip $(SERVERS)
	$(BIN)/python -m venv --without-pip $(SERVERS)/sqlite
	$(PIP) --python $(SERVERS)/bin/python install --no-deps --require-hashes -r locks/mcp/servers.lock
	$(PIP) --python $(SERVERS)/sqlite/bin/python install --no-deps --require-hashes -r locks/mcp/sqlite.lock
	cp locks/mcp/package.json locks/mcp/package-lock.json $(SERVERS)
	$(NPM_CI) --prefix $(SERVERS)
	@touch $@

run: setup  ## trains the quickstart's tiny agent here; ARGS=--fresh to do it again
	$(BIN)/agym run quickstart $(ARGS)

# pytest's exit code 5 says that ARGS chose no test of this half; heavy tests share engines and servers by file
test: setup  ## all tests, quick ones first; ARGS='-k words' for some of them
	$(BIN)/python -m pytest -m 'not heavy' -n 2 $(ARGS) || [ $$? -eq 5 ]
	$(BIN)/python -m pytest -m heavy -n 2 --dist loadfile --no-loadscope-reorder $(ARGS) || [ $$? -eq 5 ]

test-quick: setup  ## the tests without those that take seconds or an engine
	$(BIN)/python -m pytest -m 'not heavy and not slow' -n 2 $(ARGS)

check: setup  ## all that CI asks for, what is quick first
	@$(MAKE) --jobs 2 --output-sync=target lint types imports docs-check
	@$(MAKE) test

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The package is the root folder, which may have any name: mypy sees it as `agym` through a link.
# Where torch is not installed, what comes of it has no types: that alone is let pass there.
types: setup
	@mkdir -p $(TYPED) && ln -sfn ../.. $(TYPED)/agym
	MYPYPATH=$(TYPED) $(BIN)/mypy --package agym \
	  $$($(BIN)/python -c 'import torch' 2>/dev/null || echo $(UNTYPED))

imports: setup
	$(BIN)/lint-imports --config pyproject.toml

docs: setup  ## writes the schemas and the recipe reference from the code
	$(BIN)/python -m agym.dsl.publish

docs-check: setup
	@$(BIN)/python -m agym.dsl.publish --check

bench: setup  ## how long validate takes, whole cold processes
	$(BIN)/python bench/validate.py

harnesses: .venv-harness/.agym-setup  ## builds .venv-harness, with the SDKs of the recipes in recipes/harness

.venv-harness/.agym-setup: locks/harness.lock
	test -x .venv-harness/bin/python || $(PYTHON) -m venv .venv-harness
	.venv-harness/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r locks/harness.lock
	@touch $@

gpu-kit: setup  ## gathers in build/gpu-kit what a GPU machine without a network needs
	$(BIN)/python bench/gpu_kit.py

wheel: setup  ## builds the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:  ## removes what was built, not what was run
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
