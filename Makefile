# Everything here installs what it needs into .venv by itself: `make serve` and `make test` are the whole set-up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install serve test check format lock schemas conformance drift proof-kill proof-feed proof-door proof-console proof-partitions peer peer-report recipes bench bench-quick bench-producer clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

install: $(INSTALLED)  ## .venv with everything in it, and .venv/bin/collector

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

serve: install  ## the collector on its embedded store, on 127.0.0.1:8080
	@$(BIN)/collector serve

test: install  ## all tests, on a real PostgreSQL and a real SQLite
	$(BIN)/pytest -n 4 --dist worksteal

check: install  ## format, lint, types, then all tests: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: install  ## rewrite the code in its one format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schemas: install  ## write contract/schemas/ anew from the models
	$(BIN)/python -m contract.schema

lock:  ## resolve requirements.lock anew (needs uv on PATH)
	uv pip compile --universal --generate-hashes --all-extras --no-header --no-annotate --upgrade \
	  pyproject.toml -o requirements.lock

conformance: install  ## does this collector keep the contract, on both stores and both ways of a heartbeat?
	$(BIN)/python -m conformance --compare selfhosted cloud --compare selfhosted selfhosted-slow \
	  --compare cloud cloud-slow $(if $(CONFORMANCE_REPORT),--report $(CONFORMANCE_REPORT))

drift: install  ## break the collector in many ways: the suite must name the rule each time
	$(BIN)/python -m conformance.drift

proof-kill: install  ## kill -9 under load, both stores: nothing acknowledged is ever missing
	$(BIN)/python -m benchmarks.kill

proof-feed: install  ## follow the feed while collectors are killed: nothing lost, repeated or reordered
	$(BIN)/python -m benchmarks.feed

proof-door: install  ## attack a collector with and without its defences: what is wrong, and the peak of memory
	$(BIN)/python -m benchmarks.door

proof-console: install  ## the console with 5,000 workers beside 50: tasks, frames, memory (needs chromium)
	$(BIN)/python -m benchmarks.console

proof-partitions: install  ## the suite, then all tests, with the cloud store's tables in parts by tenant
	$(BIN)/python -m conformance --target partitioned
	PARTITIONED=1 $(BIN)/pytest -n 4 --dist worksteal --ignore tests/test_store_partitions.py

peer: install  ## the real voicegateway producer, unmodified, against this collector (needs the network)
	PEER=1 $(BIN)/pytest tests/test_peer.py

peer-report: install  ## the suite against the real voicegateway server, into docs/peer-report.md (needs the network)
	$(BIN)/python -m conformance.peer

recipes: install  ## the recipes for LiveKit and Pipecat, with the real packages (needs the network)
	RECIPES=1 $(BIN)/pytest tests/test_recipes_voice.py

bench: install  ## the whole suite: every figure with its goal (needs wrk; half an hour)
	$(BIN)/python -m benchmarks.suite --json bench.json

bench-quick: install  ## four of its chapters, small, in a minute or two
	$(BIN)/python -m benchmarks.suite --quick

bench-producer: install  ## what register_worker costs its host, beside the peer's (needs the network once)
	$(BIN)/python -m benchmarks.producer

clean:  ## remove the environment and the caches, never the data
	rm -rf $(VENV) .peer .recipes .mypy_cache .pytest_cache .ruff_cache
