# The commands of a contributor. `make` lists them; each sets up what it needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
PYTEST_ARGS ?=
# Half of what the tests do is wait for processes, so there are twice as many of them at a time as cores.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 2 )))
# package:command or package:file pairs; a package is installed only where that is missing. (perl-base, on every Debian,
# has a perl without JSON::PP; json_pp tells the two apart.)
SYSTEM_PACKAGES := perl:json_pp util-linux:setsid procps:ps nodejs:node postgresql:pg_ctlcluster \
    docker-registry:docker-registry bubblewrap:bwrap linux-libc-dev:/usr/include/asm-generic/unistd.h npm:npm \
    chromium:chromium nats-server:nats-server

VENV := .venv
# What other people wrote for MCP, for the tests: see tests/peers.
PEERS := .peers
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt
# Folders that hold Python; one that is absent is skipped.
CODE := $(wildcard src tests bench examples scripts)

.PHONY: help run tour test check bench setup clean system-packages

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do \
	    printf '  make %-6s  %s\n' "$$target" "$$text"; \
	done

run: setup ## start the demo: every example plugin behind one server
	@$(BIN)/plugbay serve examples --grant-all --data .plugbay/gateway

tour: setup ## show every example plugin at work, called once
	@$(BIN)/python -m examples.demo

test: setup $(PEERS)/.installed ## run all tests (PYTEST_ARGS="-k name" narrows)
	@alone=0; \
	$(BIN)/python -m pytest -q -m alone $(PYTEST_ARGS) </dev/null && alone=1 || [ $$? -eq 5 ]; \
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not alone" $(PYTEST_ARGS) </dev/null && exit || code=$$?; \
	[ $$code -ne 5 -o $$alone -eq 0 ] || exit 0; \
	[ $$code -eq 1 ] || exit $$code; \
	echo "test: what failed in company is tried again, alone: on a full machine a process may be too late" >&2; \
	$(BIN)/python -m pytest --last-failed --maxfail 10 -m "not alone" $(PYTEST_ARGS) </dev/null

check: setup ## format, lint, types, import rules, generated files
	@echo "check: format"
	@$(BIN)/ruff format --quiet --check $(CODE) || { \
	    echo "Not formatted. To fix: $(BIN)/ruff format $(CODE)" >&2; \
	    exit 1; \
	}
	@echo "check: lint"
	@$(BIN)/ruff check --quiet $(CODE)
	@echo "check: types"
	@$(BIN)/mypy --no-error-summary $(CODE)
	@echo "check: import rules"
	@report=$$($(BIN)/lint-imports --no-logo) || { printf '%s\n' "$$report" >&2; exit 1; }
	@echo "check: generated files"
	@$(BIN)/python scripts/generate.py --check

bench: $(VENV)/.bench-installed ## run the comparisons
	@$(BIN)/python -m bench

setup: $(VENV)/.dev-installed ## make .venv with everything the other targets need

clean: ## remove .venv, caches and build output
	@rm -rf $(VENV) $(PEERS) build dist .coverage htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment whose interpreter is gone is made again.
ifneq ($(shell test -x $(BIN)/python && echo usable),usable)
.PHONY: $(VENV)/.dev-installed
endif

$(VENV)/.dev-installed: pyproject.toml constraints.txt | system-packages $(BIN)/python
	@echo "setup: installing the packages of constraints.txt"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.dev-installed
	@echo "setup: installing what the comparisons need"
	@$(PIP_INSTALL) -e '.[bench]'
	@touch $@

$(PEERS)/.installed: tests/peers/package.json tests/peers/mcp1.txt | $(VENV)/.dev-installed
	@echo "setup: installing the clients and servers that the tests meet"
	@mkdir -p $(PEERS)
	@cp tests/peers/package.json $(PEERS)/
	@npm install --prefix $(PEERS) --no-audit --no-fund --no-package-lock --silent
	@$(PYTHON) -m venv --clear $(PEERS)/mcp1
	@$(PEERS)/mcp1/bin/python -m pip install -qq --no-input --disable-pip-version-check -r tests/peers/mcp1.txt
	@touch $@

define APT_INSTALL
apt_install() { \
    if [ "$$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then \
        echo "Missing system packages: $$*. Install them (Debian: sudo apt-get install $$*) and try again." >&2; \
        return 1; \
    fi; \
    echo "setup: installing the system packages: $$*"; \
    report=$$( { apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "$$@"; } </dev/null 2>&1) \
        || { printf '%s\n' "$$report" >&2; return 1; }; \
}
endef

system-packages:
	@[ "$$(uname -s)" = Linux ] || exit 0; \
	$(APT_INSTALL); \
	missing=(); \
	for pair in $(SYSTEM_PACKAGES); do \
	    command -v "$${pair#*:}" >/dev/null || [ -e "$${pair#*:}" ] || missing+=("$${pair%%:*}"); \
	done; \
	[ $${#missing[@]} -eq 0 ] || apt_install "$${missing[@]}"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "plugbay needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1 || true)." >&2; \
	    echo "Name another one: make setup PYTHON=python3.12" >&2; \
	    exit 1; \
	}
	@$(APT_INSTALL); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
	@echo "setup: making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
