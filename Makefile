# make demo: everything once, on a corpus it makes itself. make test: the tests. make docs: the site.
# make gpu-check: what was never tried without a GPU.
VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow lint docs gpu-check install clean

demo: $(INSTALLED)
	$(PYTHON) tools/demo.py

test: lint
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2

test-slow: $(INSTALLED)
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -m slow

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --config-file .mkdocs.yml

gpu-check: $(INSTALLED)
	$(PYTHON) -m tools.gpu_check

install: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@test -x $(PYTHON) || python3 -m venv $(VENV) 2>/dev/null || virtualenv $(VENV) 2>/dev/null || uv venv --seed $(VENV) || \
	  { rm -rf $(VENV); echo "no virtual environment: install Debian's python3-venv, or: pip install --user virtualenv"; exit 1; }
	@echo "installing into $(VENV): torch and what it needs take some minutes and 5.3 GiB"
	$(PYTHON) -m pip install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(INSTALLED)
	$(PYTHON) -m pip install --quiet --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build data exp
