# Every target sets up what it needs: the first run makes .venv, later runs find it ready.
SHELL := /bin/bash
PYTHON := .venv/bin/python
.DEFAULT_GOAL := help
.PHONY: help setup setup-tests test long check demo bench faults partitions simulate owners standby stores endpoints scaling docs clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## Make .venv with pinned versions of what applications need; find or install Java 17
	@scripts/setup

setup-tests:
	@scripts/setup --tests

test:  ## Check everything: style, types, import direction, doctests, tests
	@scripts/setup-test-servers & servers=$$!; scripts/setup --tests --archive-later && wait $$servers
	@scripts/check

long: setup-tests  ## Crash everywhere, try other examples, and run all of the conformance suite on every host: what "make test" samples
	@scripts/check --long

check: setup-tests  ## The static part of "make test", in seconds: style, types, import direction, doctests
	@scripts/check --static

demo:  ## Run Market Spread live for a minute and check every output (DEMO=--forever: until Ctrl-C)
	@scripts/setup --archive-later
	@$(PYTHON) scripts/demo.py $(DEMO)
	@scripts/setup

bench: setup-tests  ## Measure the figures of benchmarks/README.md on this machine
	@scripts/setup-test-servers kafka
	@scripts/setup-test-servers s3
	@scripts/setup-peers
	@$(PYTHON) -m benchmarks $(BENCH)

faults: setup-tests  ## Kill processes under load, 200 times, break disks 100 times, compare with an oracle (FAULTS="--app sequence --kills 20")
	@PYTHONPATH=src $(PYTHON) -m tests.verification $(or $(FAULTS),--kills 200)
	@$(if $(FAULTS),,PYTHONPATH=src $(PYTHON) -m tests.verification --app sequence --host in-process --faults all --kills 100)

partitions: setup-tests  ## Cut the network between hosts (namespaces, as root) under load (PARTITIONS="--kills 2")
	@reason="$$(PYTHONPATH=src $(PYTHON) -c 'from tests.verification.namespaces import unsupported_reason; print(unsupported_reason())')"; \
	if [ -n "$$reason" ]; then echo "skipped: $$reason"; exit 0; fi; \
	PYTHONPATH=src $(PYTHON) -m tests.verification --app sequence --faults partition --rate 500 $(or $(PARTITIONS),--kills 20) && \
	PYTHONPATH=src $(PYTHON) -m tests.verification --app sequence --faults partition --store --rate 500 $(or $(PARTITIONS),--kills 20)

simulate: setup-tests  ## Simulate 10,000 histories with failing disks and processes (SIMULATE="--seeds 100000", "--points")
	@PYTHONPATH=src $(PYTHON) -m tests.simulation $(or $(SIMULATE),--seeds 10000)

owners: setup-tests  ## Start two drivers at once, 500 times; stop one, take over, continue it, 50 times (OWNERS="--started 20")
	@PYTHONPATH=src $(PYTHON) -m tests.faults.owners $(or $(OWNERS),--started 500 --stopped 50)
	@PYTHONPATH=src $(PYTHON) -m tests.simulation --drivers 3 --seeds 20000

standby: setup-tests  ## Kill, or stop and continue, a driver while two others stand by, 50 times on each kind of commits (STANDBY="--stood-by 5")
	@PYTHONPATH=src $(PYTHON) -m tests.faults.owners --started 0 --stopped 0 --host resident $(or $(STANDBY),--stood-by 50)
	@PYTHONPATH=src $(PYTHON) -m tests.faults.owners --started 0 --stopped 0 --host micro-batch $(or $(STANDBY),--stood-by 50)

stores: setup-tests  ## The checkpoint in an S3 server: kill drivers behind a bad network 300 times, start two at once 500 times, stop one 50 times (STORES="--killed 20")
	@PYTHONPATH=src $(PYTHON) -m tests.stores.campaign $(or $(STORES),--killed 300)
	@$(if $(STORES),,PYTHONPATH=src $(PYTHON) -m tests.stores.campaign --started 500 --stopped 50)

endpoints: setup-tests  ## Kill an application and the systems at its ends, read what came out (ENDS="--faults 100")
	@PYTHONPATH=src $(PYTHON) -m tests.endpoints $(or $(ENDS),--faults 100)

scaling: setup-tests  ## Grow, shrink and break a cluster under load, in all orders, compare with an oracle
	@PYTHONPATH=src $(PYTHON) -m tests.verification --app sequence --changes pairs $(SCALING)
	@PYTHONPATH=src $(PYTHON) -m tests.verification --app sequence --changes failures --workers 3 $(SCALING)
	@PYTHONPATH=src $(PYTHON) -m tests.verification --app dice --changes kill,revive,kill2,revive --workers 3 --rate 1500 $(SCALING)

docs: setup-tests  ## Build the documentation and the API reference into site/
	@$(PYTHON) scripts/build_docs.py

clean:  ## Remove .venv and everything that was built
	rm -rf .venv site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
