# Every target sets up .venv first, from the two locks, and does so only when a lock or pyproject.toml changed.
#   make demo    a first tensor program on the simulated machine, with what it cost
#   make check   format, lint, strict types, fast tests
#   make test    every test
#   make bench   the benchmarks, with their bars
#   make browser a Chromium for the tests of report pages, where none is installed (Debian and Ubuntu, as root)
#   make measure the benchmarks again, written to docs/measured.md (on a machine that does nothing else)

SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
KEY := $(shell cat requirements.lock requirements-nodeps.lock pyproject.toml | cksum | tr -d ' ')
STAMP := $(VENV)/ready-$(KEY)
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP := $(PY) -m pip --disable-pip-version-check --quiet

# Processes that the tests start import faster from compiled bytecode.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo check fast test lint format warm bench browser measure relock setup clean

demo: $(STAMP)
	$(VENV)/bin/kohaku run examples/kohakutpu/01_tensors.py

check: warm
	$(MAKE) --jobs 2 lint fast

fast: $(STAMP)
	$(PY) -m pytest -m "not slow" -n 2 --dist worksteal

test: warm
	$(PY) -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(VENV)/bin/pyright

format: $(STAMP)
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

# The compiled kernels are cached on disk; this fills the cache before two test processes share it. The clock has as
# much to compile as half of the machine, so both processors are busy.
warm: $(STAMP)
	$(PY) -c "import kohakutpu.sim.loop, kohakutpu.sim.programs, tinytpu.units.sets, tinytpu.cores.network" & clock=$$!; \
	$(VENV)/bin/kohaku doctor && wait $$clock

bench: $(STAMP)
	$(PY) benchmarks/gemm.py --check
	$(PY) benchmarks/vector.py --check
	$(PY) benchmarks/dispatch.py --check
	$(PY) benchmarks/kernels.py --check
	$(PY) benchmarks/clock.py --check
	$(PY) benchmarks/revision2.py --check
	$(PY) benchmarks/automatic.py --check
	$(PY) benchmarks/models.py --check
	$(PY) benchmarks/tinytpu_speed.py --check
	$(PY) benchmarks/tinytpu_cycles.py --check
	$(PY) benchmarks/tinytpu_models.py --check
	$(PY) benchmarks/tinytpu_cores.py --check
	$(PY) benchmarks/tinytpu_tinygrad.py --check
	$(PY) benchmarks/tinygrad_kernels.py --check
	$(PY) benchmarks/tinygrad_speed.py --check
	$(PY) benchmarks/split.py --check
	$(PY) benchmarks/search.py --check
	$(PY) examples/tinygrad/10_digits_mlp.py
	$(PY) examples/tinygrad/11_digits_convnet.py

# The tests of report pages drive a Chromium; without one they are left out, except in continuous integration.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
browser:
	@test -z "$$CHROMIUM" || { "$$CHROMIUM" --version; exit; }; \
	for name in $(BROWSERS); do command -v $$name && exit 0; done; \
	if test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null; then \
		echo "no browser found, and this is not root on Debian or Ubuntu: install Chromium, or name it with CHROMIUM=/path"; \
		exit 1; \
	fi; \
	echo "installing the distribution's chromium"; export DEBIAN_FRONTEND=noninteractive; \
	apt-get install --yes --quiet --no-install-recommends chromium >/dev/null 2>&1 || \
	{ apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends chromium; }

measure: $(STAMP)
	$(PY) benchmarks/publish.py

setup: $(STAMP)

$(STAMP):
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(PY) || { echo "creating $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing what requirements.lock pins"
	@$(PIP) install --requirement requirements.lock
	@$(PIP) install --no-deps --requirement requirements-nodeps.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/ready-*
	@touch $@

# Resolves pyproject.toml's ranges anew in a fresh environment and writes the lock from what came out.
relock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --editable '.[dev,examples]' hatchling==1.28.0 editables
	{ sed -n '/^#/p' requirements.lock; \
	  $(VENV)-lock/bin/python -m pip freeze --exclude-editable --exclude kohakuaccel; } > requirements.new
	mv requirements.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV)-lock .pytest_cache .ruff_cache .hypothesis dist
