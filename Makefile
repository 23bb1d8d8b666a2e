# Two commands do all the set-up: `make train` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS := trl,parquet,gguf,tantivy,dense,fast,serve,http,dev

.PHONY: setup train test lint bench clean

setup: $(VENV)/.done

# One environment for everything. Rebuilt when the pins or the dependencies change.
$(VENV)/.done: pyproject.toml constraints.txt
	@echo "Installing Sleuth and what it needs into $(VENV); this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

train: setup
	$(BIN)/sleuth train laptop

# One thread a worker: two workers with two threads each would mostly wait for one another.
test: setup lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

# About an hour on two cores; run it on a machine that does nothing else.
bench: setup
	$(BIN)/sleuth model get smollm2-135m
	$(BIN)/python -m benchmarks.rollout --threads 1
	$(BIN)/python -m benchmarks.step laptop trainer.steps=25

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist
