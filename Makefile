# Quintet: `make` lists what can be done.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?=
# Tests mostly wait; those of one file run in one worker, in order.
WORKERS ?= 3
SECONDS ?= 60
BIN := .venv/bin
# mypy wants folders that hold Python; the list follows the tree.
TYPED := $(sort $(patsubst %/,%,$(dir $(wildcard service/*/*.py adapters/*/*.py spark-operator/*/*.py)))) \
	$(foreach folder,tests benchmarks tools monitoring,$(if $(shell find $(folder) -name '*.py' 2>/dev/null | head -1),$(folder)))

##@ Use
.PHONY: help run pipeline
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: .venv/.installed redis ## Install what is missing, start everything, show what listens where (ARGS="--data DIR ...")
	@exec $(BIN)/quintet up $(ARGS)

pipeline: .venv/.installed-spark redis java ## Show the pipeline: a load, archive and rollup beside it, then the report (SECONDS=60 ARGS="--folder DIR ...")
	@exec $(BIN)/python -m quintet_spark pipeline --seconds $(SECONDS) $(ARGS)

##@ Develop
.PHONY: venv test lint types imports verify format proto docs bench clean redis java prometheus crd dashboards
venv: .venv/.installed-dev ## Make the virtual environment with everything for development

# Hundreds of processes are started: none shall have to compile anew, also where Python is told to write no bytecode.
test: export PYTHONDONTWRITEBYTECODE :=
test: .venv/.installed-dev redis java prometheus crd .venv/spark-classes.jsa lint types imports verify ## Check everything: style, types, layers, generated files, tests (ARGS="-k ..."; WORKERS=0: one after the other)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

lint: .venv/.installed-dev ## Check style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv/.installed-dev ## Check types
	@$(BIN)/mypy $(TYPED)

imports: .venv/.installed-dev ## Check the layers
	@$(BIN)/lint-imports --no-logo

verify: .venv/.installed-dev ## Check that generated stubs, docs tables and dashboards are current
	@tools/verify_generated.sh $(BIN)/python

format: .venv/.installed-dev ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

proto: .venv/.installed-dev ## Generate the stubs from proto/
	@$(BIN)/python tools/generate_stubs.py

docs: .venv/.installed-dev ## Generate docs/settings.md and docs/metrics.md
	@$(BIN)/python tools/generate_docs.py

dashboards: .venv/.installed-dev ## Generate the Grafana dashboards from monitoring/dashboards/
	@$(BIN)/python -m monitoring.dashboards

bench: .venv/.installed-dev redis ## Measure, side by side with beanstalkd when it is installed (ARGS="...")
	@$(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove what was generated here, but never data/
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

redis:
	@tools/ensure_redis.sh

java:
	@tools/ensure_java.sh

prometheus:
	@tools/ensure_prometheus.sh

crd: .venv/.installed-dev
	@tools/ensure_operator_crd.sh

# Without it tests take longer, that is all.
.venv/spark-classes.jsa: .venv/.installed-dev tools/share_spark_classes.py | java
	@echo "Making an archive of Spark's classes for tests ..."
	@$(BIN)/python tools/share_spark_classes.py $@ 2>/dev/null || echo "There is none: tests take longer."

.venv/.installed: pyproject.toml tools/make_venv.sh
	@tools/make_venv.sh $(PYTHON)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.installed-spark: pyproject.toml tools/make_venv.sh
	@tools/make_venv.sh $(PYTHON)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[spark]'
	@touch .venv/.installed $@

.venv/.installed-dev: pyproject.toml tools/make_venv.sh
	@tools/make_venv.sh $(PYTHON)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch .venv/.installed $@
