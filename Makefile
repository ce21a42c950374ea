# make demo, make test: everything else follows from these.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
# make hands on what its command line sets, and scripts would run this one instead of .venv's.
unexport PYTHON
# More arguments for pip. Without a GPU, PyTorch's own index has wheels a tenth of the size:
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_ARGS ?=
RUN ?= runs/demo

VENV := .venv
INSTALLED := $(VENV)/.installed
# Python compiles what it imports, less than half of what is installed: that saves most of a minute.
# The versions of requirements.lock; its hashes are left out, for nothing editable has one.
LOCK ?= requirements.lock
VERSIONS = sed -e '/^ *--hash=/d' -e 's/ \\$$//' $(LOCK) > $(VENV)/constraints.txt
INSTALL = $(VERSIONS) && $(BIN)/python -m pip install --quiet --no-compile $(PIP_ARGS) \
  --constraint $(VENV)/constraints.txt --editable
BIN := $(VENV)/bin
# Two processes, of which one that has nothing left takes from the other's.
TESTS = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal $(PYTEST_ARGS)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: $(PYTHON) is $$($(PYTHON) -V); try make PYTHON=python3.12" >&2; exit 1; }
	$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/.proof: $(INSTALLED)
	$(INSTALL) '.[dev,proof]'
	@touch $@

.PHONY: help install demo test coverage soak flakes mutants check audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## set up .venv, and nothing else

demo: $(INSTALLED) ## real sentences: download, train, evaluate, translate, draw attention
	@if grep -qs '"status": "finished"' $(RUN)/provenance.json; \
	then echo "$(RUN) is trained already; remove the folder to train again"; \
	else set -x; $(BIN)/translate train experiment=demo run=$(RUN); fi
	$(BIN)/translate evaluate run=$(RUN)
	$(BIN)/translate calibrate run=$(RUN)
	$(BIN)/translate text run=$(RUN) "¿Dónde está el tren?" "No sé qué decirte." "Mi hermana vive en una casa grande."
	$(BIN)/translate attend run=$(RUN) "¿Dónde está el tren?"
	@echo
	@echo "Model:          $(RUN)/bundle"
	@echo "Scores:         $(RUN)/evaluation"
	@echo "Pictures:       $(RUN)/plots"
	@echo "Translate more: $(BIN)/translate text run=$(RUN) \"...\""

test: $(INSTALLED) ## run the tests, two at a time
	$(TESTS)

coverage: $(VENV)/.proof ## the tests with branch coverage; half as long again, or twice
	$(TESTS) --cov --cov-report=term:skip-covered

soak: $(VENV)/.proof ## the long proofs of docs/reliability.md (hours); the figures go to soak.txt
	rm -f soak.txt
	OMP_NUM_THREADS=1 SOAK_FIGURES="$(CURDIR)/soak.txt" $(BIN)/python -m pytest -q -m soak --timeout 7200 $(PYTEST_ARGS)
	cat soak.txt
	$(MAKE) flakes
	$(MAKE) mutants

flakes: $(INSTALLED) ## the tests ten times, in ten random orders; stops at the first failure (an hour)
	for run in {1..10}; do $(TESTS) || exit 1; done

# In a copy, without the decorators of search: mutmut leaves decorated functions as they are.
mutants: $(VENV)/.proof ## mutation testing of masks, batching and search (hours; goes on where it was stopped)
	mkdir -p build/mutation
	cp -r pyproject.toml conf tests translate build/mutation
	sed -i '/^    @torch.inference_mode()$$/d' build/mutation/translate/search/*.py
	cd build/mutation && OMP_NUM_THREADS=1 ../../$(BIN)/python -m mutmut run $(MUTANTS)
	cd build/mutation && ../../$(BIN)/python -m mutmut results

check: $(INSTALLED) ## formatting, lint, types, the direction of imports
	scripts/check

requirements.lock: pyproject.toml | $(VENV)/.proof ## the versions and hashes that the tests ran with
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --extra proof --universal --python-version 3.11 \
	  --generate-hashes --custom-compile-command "make requirements.lock" --output-file $@

audit: $(VENV)/.proof requirements.lock ## known vulnerabilities in requirements.lock; fails without network
	@$(BIN)/pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict || \
	  { echo "audit failed: see above; without an advisory service nothing is known to be safe" >&2; exit 1; }

clean: ## remove the environment and caches; runs and data stay
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
