# Everything a person or CI does here. `make help` lists it.

.DEFAULT_GOAL := help
# Suites share the machine's cores and print their own times: one after the other, whatever -j says.
.NOTPARALLEL:
.PHONY: help setup demo test check lint bench test-spark41 lock format clean

# The first interpreter that runs and is new enough.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
VENV41 := .venv-spark41
BIN := $(VENV)/bin
PIP := bin/python -m pip --disable-pip-version-check --no-input

# `make test SUITES=unit` runs one of them.
SUITES := architecture unit crash/cycles contract bridge spark crash e2e browser
# Spark's suites run in one process: the second finds a Spark that is started and warm.
WITH_SPARK := $(filter spark crash,$(SUITES))
# What needs no engine of its own shares the cores.
pytest-unit := -n logical --dist worksteal
pytest-crash/cycles := -n logical --dist worksteal
pytest-contract := -n logical --dist loadfile
# What the lines of Spark may do differently: how they run tasks and shuffle, and what their SQL does to our tables.
SPARK41 := tests/spark/engine tests/spark/pipeline tests/spark/operations/test_outside.py tests/spark/operations/test_rebuild_on_spark.py

# CI explores more crashes; everything else it demands is decided by CI=true inside the tests.
export CRASH_SEEDS ?= $(if $(filter true,$(CI)),200,50)

# Spark 4.1 does not start on the bundled Java, so its tests borrow the system's.
JDK17 := $(or $(JDK17_HOME),$(patsubst %/bin/java,%,$(firstword $(wildcard /usr/lib/jvm/java-17-openjdk-*/bin/java))))

# One version per package for every platform and Python, so that one lock serves all.
UV_FLAGS := --quiet --upgrade --universal --fork-strategy fewest --python-version 3.11 --generate-hashes \
	--no-config --custom-compile-command 'make lock'

# $(call timed,name,command): say what runs, run it, say how long it took.
define timed
	@printf '\n== %s\n' '$(1)'; start=$$(date +%s); $(2); status=$$?; \
	printf '== %s: %s in %s s\n' '$(1)' "$$([ $$status = 0 ] && echo passed || echo FAILED)" "$$(($$(date +%s) - start))"; \
	exit $$status
endef

# $(call install,venv,lock): exactly what the lock says, then the project itself, editable. PySpark has no wheel, so
# the locked setuptools goes first and builds it: nothing comes from the index without a hash.
define install
	@[ -n "$(PYTHON)" ] || { echo "setup: Lean-Ops needs Python 3.11, 3.12 or 3.13; install python3.11, or say where it is: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setup: $(2) into $(1) (the first time downloads some 500 MB and takes a minute or two)"
	@$(1)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(1) || \
		{ echo "setup: $(PYTHON) cannot make a virtual environment; on Debian or Ubuntu install python3-venv" >&2; exit 1; }
	@sed -n '/^setuptools==/,/[^\\]$$/p' $(2) > $(1)/build.lock
	@$(1)/$(PIP) install --quiet --require-hashes -r $(1)/build.lock
	@$(1)/$(PIP) install --quiet --require-hashes --use-pep517 --no-build-isolation -r $(2)
	@$(1)/$(PIP) install --quiet --no-deps --no-index --no-build-isolation --editable .
	@touch $@
endef

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements.lock pyproject.toml
	$(call install,$(VENV),requirements.lock)

$(VENV41)/.installed: requirements-spark41.lock pyproject.toml
	$(call install,$(VENV41),requirements-spark41.lock)

setup: $(VENV)/.installed ## Make .venv with the locked dependencies (skipped when nothing changed)

demo: setup ## Run a small emulation end to end, verify it and show the balance
	@$(BIN)/leanops demo

test: setup $(addprefix suite-,$(filter-out $(WITH_SPARK),$(SUITES))) $(if $(WITH_SPARK),suites-with-spark) ## Run the tests: unit, contracts, small e2e, browser, Spark, 50 crash seeds

.PHONY: suites-with-spark $(addprefix suite-,$(SUITES))
$(addprefix suite-,$(SUITES)): suite-%: setup
	$(call timed,tests/$*,$(BIN)/python -m pytest $(pytest-$*) tests/$*)

suites-with-spark: setup
	$(call timed,$(addprefix tests/,$(WITH_SPARK)),$(BIN)/python -m pytest $(addprefix tests/,$(WITH_SPARK)) --ignore=tests/crash/cycles)

lint: setup ## Check format, lint rules, types, import rules and spelling
	$(call timed,format,$(BIN)/ruff format --check .)
	$(call timed,lint,$(BIN)/ruff check .)
	$(call timed,types,$(BIN)/mypy)
	$(call timed,import rules,$(BIN)/lint-imports --no-logo)
	$(call timed,spelling,$(BIN)/codespell)

check: ## Everything CI runs: lint, test, then the second Spark line
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-spark41

test-spark41: ## Run the Spark tests on PySpark 4.1 with a system JDK 17 (JDK17_HOME says where)
ifeq ($(JDK17),)
	@echo "test-spark41: $(if $(filter true,$(CI)),FAILED,skipped): no JDK 17; install openjdk-17-jre-headless or set JDK17_HOME" >&2
	@$(if $(filter true,$(CI)),false,true)
else
	@$(MAKE) --no-print-directory $(VENV41)/.installed
	$(call timed,tests/spark on PySpark 4.1,JAVA_HOME=$(JDK17) $(VENV41)/bin/python -m pytest -m "not slow" $(SPARK41))
endif

bench: setup ## Run the benchmark and print its table
	@$(BIN)/python -m bench

lock: ## Resolve the dependencies again into both lock files
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/$(PIP) install --quiet uv==0.13.7
	@.venv-lock/bin/uv pip compile $(UV_FLAGS) --all-extras pyproject.toml requirements.in -o requirements.lock
	@.venv-lock/bin/uv pip compile $(UV_FLAGS) --extra cluster --extra aws --extra gcp --extra dev pyproject.toml requirements-spark41.in -o requirements-spark41.lock
	@rm -rf .venv-lock

format: setup ## Format the code and fix what lint can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## Remove the virtual environments and caches
	rm -rf .venv .venv-spark41 .venv-lock .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
