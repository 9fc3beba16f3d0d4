# The commands of a contributor. `make` lists them; each sets up what it needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
# Each Python that `make prove` runs the tests on.
PYTHONS ?= $(shell for minor in 11 12 13 14; do \
    python3.$$minor -c '' 2>/dev/null && command -v python3.$$minor; done)
PYTEST_ARGS ?=
MINUTES ?= 120
RUNS ?= 20
SECONDS ?= 300
# What `make cluster` runs; as above.
CLUSTER_PACKAGES := bubblewrap:bwrap util-linux:setpriv postgresql:pg_ctlcluster docker-registry:docker-registry \
    nats-server:/usr/sbin/nats-server haproxy:/usr/sbin/haproxy
# What `make image` runs; as above.
IMAGE_PACKAGES := mmdebstrap:mmdebstrap buildah:buildah
# Most of a test is waiting for processes, so three times as many tests as cores run at a time.
JOBS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 )))
# package:command or package:file pairs; a package is installed only where that is missing. (perl-base, on every Debian,
# has a perl without JSON::PP; json_pp tells the two apart.)
TEST_PACKAGES := bubblewrap:bwrap perl:json_pp util-linux:setsid procps:ps nodejs:node npm:npm \
    linux-libc-dev:/usr/include/asm-generic/unistd.h postgresql:pg_ctlcluster docker-registry:docker-registry \
    chromium:chromium nats-server:/usr/sbin/nats-server e2fsprogs:/usr/sbin/mkfs.ext4 haproxy:/usr/sbin/haproxy \
    systemd:systemd-analyze iproute2:ip openssl:openssl

VENV ?= .venv
# Programs and libraries by other authors, which the tests meet: see tests/peers and tests/frameworks.
PEERS := .peers
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c constraints.txt \
    -e distributions/sdk
PROJECTS := pyproject.toml distributions/sdk/pyproject.toml
# Programs that tests start by name are those of the environment.
PYTEST = PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest
# Folders that hold Python; one that is absent is skipped.
CODE := $(wildcard src tests bench deploy examples scripts)

.PHONY: help run tour cluster test test-all prove mutation fuzz faults soak check docs bench dist image setup clean \
    bubblewrap test-packages cluster-packages image-packages

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do \
	    printf '  make %-9s %s\n' "$$target" "$$text"; \
	done

run: bubblewrap $(VENV)/.run-installed ## start the demo: every example plugin behind one server
	@options=(); \
	command -v bwrap >/dev/null || { \
	    echo "run: bubblewrap is missing (Debian: apt-get install bubblewrap), so the examples run unconfined"; \
	    options+=(--no-sandbox); \
	}; \
	$(BIN)/plugbay serve examples --grant-all --data .plugbay/gateway "$${options[@]}"

tour: bubblewrap $(VENV)/.run-installed ## show every example plugin at work, called once
	@$(BIN)/python -m examples.demo

cluster: cluster-packages $(VENV)/.cluster-installed ## start gateways, nodes and all they need on this machine: docs/scale.md
	@$(BIN)/python deploy/cluster.py $(CLUSTER_ARGS)

# A selection that PYTEST_ARGS narrows to nothing is no failure. The profile says how many examples a property is tried
# on: see tests/conftest.py.
define RUN_TESTS
@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-$(2)} $(PYTEST) --jobs $(JOBS) -m "$(1)" $(PYTEST_ARGS) </dev/null \
    || $(if $(PYTEST_ARGS),[ $$? -eq 5 ],exit)
endef

test: setup ## run the tests of all behaviour (PYTEST_ARGS="-k name" narrows)
	$(call RUN_TESTS,not exhaustive,short)

test-all: test ## then the second event loop, codec and architecture, more examples of each property, and every row of every contract
	$(call RUN_TESTS,(exhaustive or hypothesis),long)

prove: mutation fuzz faults image ## all of that on each Python of PYTHONS, forty times as many random examples; all mutants; faults; the image
	@for python in $(PYTHONS); do \
	    name=$$($$python -c 'import sys; print("{}.{}".format(*sys.version_info))'); \
	    echo "prove: Python $$name"; \
	    HYPOTHESIS_PROFILE=prove PLUGBAY_FUZZ=40 PLUGBAY_KILLS=30 PLUGBAY_STEP=1 \
	        $(MAKE) test-all PYTHON="$$python" VENV=".venv-$$name"; \
	done

mutation: setup ## change each decision of the modules that decide: their tests must notice
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.mutation

fuzz: setup ## search for inputs that break a promise, SECONDS for each reader of hostile bytes, 300 by default
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.fuzz all --seconds $(SECONDS)

faults: setup ## harm a cluster under load at random, RUNS times, 20 by default: no promise of docs/scale.md may break
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.faults --runs $(RUNS)

soak: setup ## run a server under mixed load for MINUTES, 120 by default: nothing grows, nothing is lost; PAGES=1: page views
	@$(BIN)/python -m tests.soak $(MINUTES) $(if $(PAGES),--pages)

check: $(VENV)/.dev-installed ## format, lint, types, import rules, generated files, links
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
	@echo "check: links"
	@$(BIN)/python scripts/links.py

docs: $(VENV)/.docs-installed ## build the documentation site in site/
	@$(BIN)/python scripts/site.py

bench: $(VENV)/.bench-installed ## run the comparisons
	@$(BIN)/python -m bench

dist: $(VENV)/.dev-installed ## build wheels, source distributions and bills of materials in dist/, and check them
	@rm -rf dist
	@$(BIN)/python -m scripts.dist

image: image-packages $(VENV)/.dev-installed ## build the container image dist/plugbay.oci.tar without a daemon, and check it
	@$(BIN)/python deploy/image/build.py

setup: test-packages $(VENV)/.tests-compiled $(PEERS)/.installed $(PEERS)/frameworks/.installed ## install what the tests need

clean: ## remove environments, caches and build output
	@rm -rf $(VENV) .venv-* $(PEERS) build dist site .coverage htmlcov .fuzz .hypothesis .import_linter_cache .mypy_cache \
	    .pytest_cache .ruff_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment whose interpreter is gone is made again.
ifneq ($(shell test -x $(BIN)/python && echo usable),usable)
.PHONY: $(VENV)/.run-installed $(VENV)/.dev-installed $(VENV)/.cluster-installed
endif

$(VENV)/.run-installed: $(PROJECTS) constraints.txt | $(BIN)/python
	@echo "setup: installing plugbay and its server"
	@$(PIP_INSTALL) -e '.[examples,serve,uvloop]'
	@touch $@

$(VENV)/.dev-installed: $(PROJECTS) constraints.txt | $(BIN)/python
	@echo "setup: installing the packages of constraints.txt"
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.run-installed

$(VENV)/.cluster-installed: $(PROJECTS) constraints.txt | $(BIN)/python
	@echo "setup: installing plugbay for several machines"
	@$(PIP_INSTALL) -e '.[nats,oci,postgres,serve,uvloop]'
	@touch $@

# pytest keeps bytecode of its own. To make it takes one core a minute, which each test run would begin with otherwise.
$(VENV)/.tests-compiled: | $(VENV)/.dev-installed
	@echo "setup: compiling the tests"
	@$(PYTEST) -q --collect-only >$@.log || { tail -n 40 $@.log; exit 1; }
	@touch $@

$(VENV)/.bench-installed: $(VENV)/.dev-installed
	@echo "setup: installing what the comparisons need"
	@$(PIP_INSTALL) -e '.[bench]'
	@touch $@

$(VENV)/.docs-installed: $(PROJECTS) constraints.txt | $(BIN)/python
	@echo "setup: installing the generator of the documentation site"
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@

$(PEERS)/.installed: tests/peers/package.json tests/peers/mcp1.txt | test-packages $(VENV)/.dev-installed
	@echo "setup: installing the clients and servers that the tests meet"
	@mkdir -p $(PEERS)
	@cp tests/peers/package.json $(PEERS)/
	@npm install --prefix $(PEERS) --no-audit --no-fund --no-package-lock --silent
	@$(PYTHON) -m venv --clear $(PEERS)/mcp1
	@$(PEERS)/mcp1/bin/python -m pip install -qq --no-input --disable-pip-version-check -r tests/peers/mcp1.txt
	@touch $@

$(PEERS)/frameworks/.installed: tests/frameworks/requirements.txt | $(VENV)/.dev-installed
	@echo "setup: installing the agent frameworks that the tests meet"
	@mkdir -p $(PEERS)
	@$(PYTHON) -m venv --clear $(PEERS)/frameworks
	@$(PEERS)/frameworks/bin/python -m pip install -qq --no-input --disable-pip-version-check --no-deps \
	    -r tests/frameworks/requirements.txt
	@touch $@

define APT_INSTALL
may_install() { [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }; \
apt_install() { \
    may_install || { \
        echo "Missing system packages: $$*. Install them (Debian: sudo apt-get install $$*) and try again." >&2; \
        return 1; \
    }; \
    echo "setup: installing the system packages: $$*"; \
    report=$$( { apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install -y --no-install-recommends "$$@"; } </dev/null 2>&1) \
        || { printf '%s\n' "$$report" >&2; return 1; }; \
}
endef

# Installed where that is allowed; the demo runs without it.
bubblewrap:
	@$(APT_INSTALL); \
	[ "$$(uname -s)" != Linux ] || command -v bwrap >/dev/null || ! may_install || apt_install bubblewrap

# Install the packages of a list that are missing.
define INSTALL_MISSING
@[ "$$(uname -s)" = Linux ] || exit 0; \
$(APT_INSTALL); \
missing=(); \
for pair in $(1); do \
    command -v "$${pair#*:}" >/dev/null || [ -e "$${pair#*:}" ] || missing+=("$${pair%%:*}"); \
done; \
[ $${#missing[@]} -eq 0 ] || apt_install "$${missing[@]}"
endef

test-packages:
	$(call INSTALL_MISSING,$(TEST_PACKAGES))

cluster-packages:
	$(call INSTALL_MISSING,$(CLUSTER_PACKAGES))

image-packages:
	$(call INSTALL_MISSING,$(IMAGE_PACKAGES))

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "plugbay needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1 || true)." >&2; \
	    echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	    exit 1; \
	}
	@$(APT_INSTALL); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
	@echo "setup: making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
