.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q
RUN_STAMP := $(VENV)/.run-ready
TEST_STAMP := $(VENV)/.test-ready

.PHONY: help run setup setup-test test style format types typings unit cov bench wheel clean

help: ## list these habits
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

run: $(RUN_STAMP) ## install what is missing and serve on http://127.0.0.1:8000
	@exec $(BIN)/cosyvoice-stream serve

test: setup-test style types wheel ## everything: style, types, wheel, all tests
	$(BIN)/pytest

setup: $(RUN_STAMP) ## create .venv with the run-time environment

setup-test: $(TEST_STAMP) ## add the test environment (recogniser, speaker encoder, browser)
	@tests/support/system-packages.sh

$(RUN_STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing cosyvoice-stream into $(VENV)"
	@$(PIP) -e .
	@touch $@

# Resemblyzer asks for webrtcvad, which needs a compiler; webrtcvad-wheels is the same module.
$(TEST_STAMP): pyproject.toml $(RUN_STAMP)
	@echo "installing the test environment into $(VENV)"
	@$(PIP) -e '.[test]'
	@$(PIP) --no-deps Resemblyzer==0.1.4
	@touch $@

style: ## ruff: format check and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: ## ruff: rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: typings ## mypy --strict
	$(BIN)/mypy

typings: ## links that mirror the installed layout, for type checkers
	@rm -rf typings && mkdir -p typings/cosyvoice_stream
	@ln -s $(foreach f,$(filter-out %/__pycache__,$(wildcard cosyvoice_stream/*)),../../$(f)) typings/cosyvoice_stream/
	@ln -s $(foreach d,server streaming telephony web_demo,../../$(d)) typings/cosyvoice_stream/

unit: ## tests without sockets or browsers
	$(BIN)/pytest -m "unit or protocol"

cov: setup-test ## branch coverage of the unit and protocol tests
	@$(PIP) coverage
	$(BIN)/coverage run -m pytest -m "unit or protocol"
	$(BIN)/coverage report

bench: setup-test ## first audio, underruns and memory under load, beside a Piper voice
	$(BIN)/python benchmarks/first_audio.py --json artifacts/first_audio.json

wheel: setup-test ## build the wheel and use it outside the checkout
	@rm -rf build dist && $(PIP) build && $(BIN)/python -m build --wheel --outdir dist . >/dev/null
	@tests/support/try-wheel.sh dist/*.whl

clean: ## remove everything that a build makes
	rm -rf build dist typings artifacts *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
