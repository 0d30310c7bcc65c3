.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.run-ready
TEST_STAMP := $(VENV)/.test-ready

.PHONY: help run setup setup-test typings style format types unit test cov bench wheel clean

help: ## list these habits
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

run: $(RUN_STAMP) ## install what is missing and start the server on http://127.0.0.1:8000
	@exec $(BIN)/cosyvoice-stream serve

setup: $(RUN_STAMP) ## create .venv with the run-time environment

setup-test: $(TEST_STAMP) ## add the test environment (ASR, speaker encoder, browser driver)

$(RUN_STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check -q -e .
	@touch $@

# Resemblyzer asks for the source build of webrtcvad; the wheels that we use have the same module.
$(TEST_STAMP): pyproject.toml $(RUN_STAMP)
	@$(BIN)/python -m pip install --disable-pip-version-check -q -e '.[test]'
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps Resemblyzer==0.1.4
	@touch $@

typings: ## links that mirror the installed layout, for type checkers
	@rm -rf typings && mkdir -p typings/cosyvoice_stream
	@ln -s $(foreach f,$(filter-out %/__pycache__,$(wildcard cosyvoice_stream/*)),../../$(f)) typings/cosyvoice_stream/
	@ln -s $(foreach d,server streaming telephony web_demo,../../$(d)) typings/cosyvoice_stream/

style: ## ruff: format check and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: ## ruff: rewrite
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: typings ## mypy --strict
	$(BIN)/mypy

unit: ## tests without sockets, models or browsers (seconds)
	$(BIN)/pytest tests/unit -q

clean: ## remove everything that a build makes
	rm -rf build dist typings artifacts *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
