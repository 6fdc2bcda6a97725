VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.PHONY: help demo test unit test-slow torture nightly lint docs gpu-check lines release lowest install clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(INSTALLED) ## train, decode, stream and export once, on a corpus that it makes (4 to 11 minutes)
	$(PYTHON) tools/demo.py

test: lint ## linters and the fast tests
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 10

unit: $(INSTALLED) ## the fast tests of model, search, text, data and audio
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(addprefix tests/,model search text data audio)

test-slow: $(INSTALLED) ## the slow tests: trainings, an hour of audio
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m slow --durations 10

torture: $(INSTALLED) ## mutated inputs of every kind, and kills of commands: EXAMPLES=5000 RUNS=20 ARGS="-k audio --hypothesis-seed 1"
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m torture tests/torture $(ARGS)

nightly: $(INSTALLED) ## all tests, torture and demo, for hours; the summary is build/nightly/summary.txt: PARTS="test-slow torture"
	.ci/nightly $(PARTS)

lint: $(INSTALLED) ## ruff, mypy and lint-imports
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

lines: $(INSTALLED) ## the lines of each folder beside its budget
	$(PYTHON) tools/lines.py

docs: $(VENV)/.docs ## the site, into build/docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --config-file .mkdocs.yml

gpu-check: $(INSTALLED) ## what needs a GPU: checks, kernels, times
	$(PYTHON) -m tools.gpu_check
	$(PYTHON) tools/benchmarks/bench_gpu.py

release: $(VENV)/.release ## wheel and sdist, tried in empty environments, with SBOM and checksums: PYTHONS="python3.11" KEY=ID
	.ci/release $(PYTHON)

lowest: $(VENV)/.release ## the fast tests with the lowest versions of all dependencies but torch: ARGS="tests/audio"
	.ci/lowest $(ARGS)

install: $(INSTALLED) ## .venv with everything

$(INSTALLED): pyproject.toml
	@test -x $(PYTHON) || python3 -m venv $(VENV) 2>/dev/null || virtualenv $(VENV) 2>/dev/null || uv venv --seed $(VENV) || \
	  { rm -rf $(VENV); echo "no virtual environment: install Debian's python3-venv, or: pip install --user virtualenv"; exit 1; }
	@echo "installing into $(VENV): torch and what it needs take some minutes and 5.3 GiB"
	$(PYTHON) -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.release: $(INSTALLED)
	$(PYTHON) -m pip install --quiet 'build>=1.2' 'cyclonedx-bom>=7' 'pip-audit>=2.7' 'uv>=0.9'
	@touch $@

$(VENV)/.docs: $(INSTALLED)
	$(PYTHON) -m pip install --quiet 'mkdocs-material>=9.6' 'mkdocstrings[python]>=0.29'
	@touch $@

clean: ## remove .venv, build, data and exp
	rm -rf $(VENV) build data exp
