# Two commands for a new machine (Python 3.11+, pip, make, git): `make run` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
BENCH := .venv-bench/bin
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

.PHONY: run setup setup-run test lint types pytest test-deploy test-browser bench docs clean

run: setup-run  ## three models over 120 clients, several methods compared, a table and a picture
	$(BIN)/fedmux compare examples/quickstart.toml

test: lint types pytest  ## everything CI runs

setup-run: .venv/runs  ## what running needs
setup: .venv/ready  ## what developing needs as well

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.venv/runs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(INSTALL) --editable .
	touch $@

.venv/ready: .venv/runs
	$(INSTALL) --editable '.[dev]'
	touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

pytest: setup
	$(BIN)/python -m pytest -n 2

test-deploy: setup  ## real federations whose nodes and servers are killed, hang and come back: minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/deploy

test-browser: setup  ## the pages in a real Chromium (Debian: apt-get install chromium), with real runs: minutes
	$(BIN)/python -m pytest tests/browser

bench: setup .venv-bench/ready  ## side-by-side measurements; prints, asserts nothing
	$(BIN)/python benchmarks/million_clients.py
	$(BIN)/python benchmarks/optimal_sampling.py
	$(BIN)/python benchmarks/fair_probabilities.py
	$(BIN)/python benchmarks/clustering.py
	$(BIN)/python benchmarks/loss_spikes.py
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/table1_round.py --data fashion-mnist-sample --rounds 8
	$(BENCH)/python benchmarks/speed/compare.py $(BENCH_OPTIONS)
	if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
		$(BIN)/python benchmarks/speed/on_gpu.py; fi
	$(MAKE) docs

.venv-bench/ready: pyproject.toml $(wildcard benchmarks/speed/requirements-*.txt)
	test -x $(BENCH)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 --editable .
	for peer in pfl fedjax flower; do $(BENCH)/python -m pip install --quiet --disable-pip-version-check \
		--requirement benchmarks/speed/requirements-$$peer.txt || echo "$$peer: cannot be installed, left out"; done
	touch $@

docs: setup  ## regenerate what is generated: the experiment file reference, the papers, the house, the benchmark tables
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/papers.py
	$(BIN)/python docs/house.py
	$(BIN)/python benchmarks/speed/table.py benchmarks/results/*.json > docs/benchmark-results.md

clean:
	rm -rf .venv .venv-bench build dist .pytest_cache .mypy_cache .ruff_cache
