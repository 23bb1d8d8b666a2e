# Two commands do all the set-up: `make train` and `make test`.
PYTHON   ?= python3
VENV     := .venv
BIN      := $(VENV)/bin
EXTRAS   := trl,parquet,gguf,lab,tantivy,dense,fast,serve,http,dev
VERL     := .venv-verl
VERL_BIN := $(VERL)/bin
# SkyRL's registries, without what its trainer wants (CUDA, vLLM, flash-attn).
SKYRL    := skyrl skyrl-gym loguru jaxtyping wadler-lindig
# What both environments share, tested in both: their transformers differ.
CORE     := tests/agent tests/diagnostics tests/examples tests/objectives tests/samplers tests/test_rollouts.py
# One thread a worker: two workers with two threads each would mostly wait for one another.
PYTEST   := -m pytest -n 2 --dist loadfile

.PHONY: setup train test test-verl-slow browser lint bench clean

setup: $(VENV)/.done $(VERL)/.done

# Everything but verl, which can't share an environment with TRL. Rebuilt when the pins or the dependencies change.
$(VENV)/.done: pyproject.toml constraints.txt
	@echo "Installing Sleuth and what it needs into $(VENV); this takes a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

# verl and no TRL; beside it SkyRL's registries.
$(VERL)/.done: pyproject.toml constraints-verl.txt
	@echo "Installing Sleuth and verl into $(VERL); this takes a few minutes."
	$(PYTHON) -m venv $(VERL)
	$(VERL_BIN)/python -m pip install -q --upgrade pip
	$(VERL_BIN)/python -m pip install -q -c constraints-verl.txt torch
	$(VERL_BIN)/python -m pip install -q -c constraints-verl.txt -e '.[verl,test]'
	$(VERL_BIN)/python -m pip install -q -c constraints-verl.txt --no-deps $(SKYRL)
	touch $@

train: $(VENV)/.done
	$(BIN)/sleuth train laptop

test: setup browser lint
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)
	OMP_NUM_THREADS=1 $(VERL_BIN)/python $(PYTEST) $(CORE)
	OMP_NUM_THREADS=1 $(VERL_BIN)/python $(PYTEST) tests/training/verl tests/training/skyrl -m 'not slow'

# verl's own workers and the whole of it with Ray, on a CPU: some minutes a test.
test-verl-slow: setup
	OMP_NUM_THREADS=1 $(VERL_BIN)/python -m pytest tests/training/verl -m slow

# The report's pages are tested in Chromium. Without one those tests are skipped, and say so.
browser:
	@command -v chromium > /dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && echo "Installing Chromium for the report's tests." && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium > /dev/null; \
	} || echo "No Chromium: the tests of the report's pages will be skipped."

lint: $(VENV)/.done
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

# About an hour on two cores; run it on a machine that does nothing else.
bench: $(VENV)/.done
	$(BIN)/sleuth model get smollm2-135m
	$(BIN)/python -m benchmarks.rollout --threads 1
	$(BIN)/python -m benchmarks.step laptop trainer.steps=25
	$(BIN)/python -m benchmarks.diagnosis laptop
	$(BIN)/python -m benchmarks.objectives
	$(BIN)/python -m benchmarks.report
	$(BIN)/python -m benchmarks.evaluation
	$(BIN)/python -m benchmarks.fuzzing --growth

clean:
	rm -rf $(VENV) $(VERL) .mypy_cache .pytest_cache .ruff_cache build dist
