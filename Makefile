# ADE: `make help` lists the targets. Nothing is needed but Python >= 3.11, pip and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Extra arguments for the program behind a target, as in `make test ARGS="-k lease"`.
ARGS ?=

# Tests take one process more than there are cores, and at most four: many of them wait more than they work.
# `make test JOBS=0` runs them in one process, where a debugger can be used.
CORES  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
JOBS   ?= $(if $(filter 1 2,$(CORES)),$(shell expr $(CORES) + 1),4)
# Hundreds of tests start Python: it may keep what it has compiled, whatever the shell says (`make clean` removes it).
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help run test test-all lint check bench bench-quick campaign fuzz sbom audit lock format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: $(VENV)/.runtime ## start ADE with the demo app on ./.ade/ade.db
	@mkdir -p .ade
	$(BIN)/ade up --app ade.demo:ade --store sqlite:///.ade/ade.db $(ARGS)

test: $(VENV)/.dev ## every behavior, within ten minutes on two cores
	$(PYTEST) -m "not long" $(ARGS)

test-all: $(VENV)/.dev ## the rest: what takes long by nature, and random tests once more in depth
	TEST_DEPTH=deep $(PYTEST) -m "long or deep" $(ARGS)

lint: $(VENV)/.dev ## lint, format check, types, import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## the same and the fast tests
	$(PYTEST) -m "not long and not slow and not faults and not realtime" $(ARGS)

bench: $(VENV)/.dev ## measure ADE beside its peers, in full
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(VENV)/.dev ## the same with small numbers: shows that it works, not how fast it is
	$(BIN)/python -m benchmarks --quick $(ARGS)

campaign: $(VENV)/.dev ## kill workers and producers at random for some minutes, then check every invariant
	$(BIN)/python -m tests.faults.campaign $(ARGS)

fuzz: $(VENV)/.fuzz ## try every parser with inputs that a fuzzer makes up, 30 s each (ARGS="--seconds 300 cursors")
	PYTHONHASHSEED=0 $(BIN)/python -m tests.fuzz $(ARGS)

sbom: $(VENV)/.dev ## write the list of components (CycloneDX) into dist
	$(BIN)/python requirements/sbom.py $(ARGS)

audit: $(VENV)/.audit ## look up known weaknesses of what ADE is made of
	$(BIN)/python requirements/audit.py $(ARGS)

lock: $(VENV)/.dev ## rewrite requirements/*.txt from pyproject.toml (UPGRADE=1 takes newer versions)
	$(BIN)/python requirements/lock.py $(if $(UPGRADE),--upgrade)

format: $(VENV)/.dev ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that was made, except ./.ade
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .fuzz benchmarks/.scratch
	find src tests benchmarks requirements -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp file tells that the environment holds what a lock names, so that repeated calls cost nothing.
# Every package comes from a lock and is checked against its hash. ADE itself is linked in without
# build isolation, because isolation would fetch the build tools once more, unpinned.
define INSTALL
	$(PIP) install --require-hashes $(1)
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@
endef

$(VENV)/.runtime: $(VENV)/.made requirements/runtime.txt requirements/build.txt pyproject.toml
	$(call INSTALL,-r requirements/runtime.txt -r requirements/build.txt)

$(VENV)/.dev: $(VENV)/.made requirements/dev.txt pyproject.toml
	$(call INSTALL,-r requirements/dev.txt)

# Tools beside the others. Without a wheel for this system there is nothing to install; the target then says so.
$(VENV)/.fuzz $(VENV)/.audit: $(VENV)/.%: $(VENV)/.dev requirements/%.txt
	@$(PIP) install --require-hashes --only-binary :all: -r requirements/$*.txt && touch $@ \
		|| echo 'requirements/$*.txt cannot be installed on this machine'

OLD_PYTHON = ADE needs Python 3.11 or newer, and `$(PYTHON)` is older. Name another: make PYTHON=/path/to/python3.12 ...
NO_VENV    = `$(PYTHON) -m venv` failed. On Debian and Ubuntu, `apt-get install python3-venv` brings what it needs.

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo 'There is no `$(PYTHON)` here. Install Python 3.11 or newer.' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo '$(OLD_PYTHON)' >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo '$(NO_VENV)' >&2; exit 1; }
	@touch $@
