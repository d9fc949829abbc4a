# Everything runs in .venv/, which `make install` makes. Variables can be set on the command line:
#   PYTHON   which Python makes .venv (3.10 to 3.13; the first one found by default)
#   ROUNDS   how long `make soak` runs (500 by default)
#   SEED     what `make soak` starts its random choices from (printed, random by default)
#   TESTS    what `make check-tests` runs (all by default)
ROUNDS ?= 500
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
TESTS ?=
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo demo-embedded test lint check-tests soak bench docs picture lock format clean

help:  ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile

##@ Start here
demo: install  ## Install everything and run the main job: a streaming query on Spark, killed and rewound
	@$(BIN)/laminar-delta demo --spark

demo-embedded: install  ## The same without a JVM: two writers race, a pipeline is killed twice
	@$(BIN)/laminar-delta race --rounds 8
	@$(BIN)/laminar-delta demo

test: install lint check-tests  ## Install everything, then lint, types and all tests

install: $(STAMP)  ## Install everything into .venv/ (and Java and Chromium where they are missing)

$(STAMP): requirements.lock pyproject.toml .ci/ensure-venv .ci/ensure-java .ci/ensure-chromium
	@.ci/ensure-venv
	@.ci/ensure-java
	@.ci/ensure-chromium
	@echo "Installing the locked packages (a minute or two the first time) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes --progress-bar on -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $(STAMP)

##@ Work
lint: install  ## Formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check-tests: install  ## All tests, or those in TESTS
	@.ci/check-tests $(TESTS)

format: install  ## Format the code and mend what lint can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: install  ## Long random runs: ROUNDS rounds from SEED
	@echo "SEED=$(SEED) ROUNDS=$(ROUNDS)"
	LAMINAR_SOAK_ROUNDS=$(ROUNDS) LAMINAR_SOAK_SEED=$(SEED) $(BIN)/python -m pytest -m soak -o faulthandler_timeout=3600

bench: install  ## Measure, as ratios side by side
	$(BIN)/python -m benchmarks

docs: install  ## Build the documentation into site/, every warning an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

picture: install  ## Make the picture of the report in the README anew
	$(BIN)/python -m tests.support.picture docs/report.webp

lock: install  ## Resolve the exact versions anew
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.10 --all-extras --generate-hashes \
	    --no-emit-index-url --no-header --upgrade --quiet -o requirements.lock

clean:  ## Remove what make made, .venv/ included
	rm -rf .venv build dist site artefacts .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
