# All commands for a checkout. They need CPython 3.10 or newer with its headers, a C compiler and Rust. The Makefile
# installs everything else into .venv.
#
#   make demo        build, and compare wsfast with picows on this machine
#   make test        all checks: linters, C tests, documentation, a short run of the benchmarks, pytest
#   make test-all    pytest under every CPython found from 3.10 to 3.15, each in a .venv-3.X of its own;
#                    PYTHONS="/opt/a/bin /opt/b/bin" are directories to look for them in first
#   make bench-quick every work of the benchmarks, in three minutes; `make bench` writes docs/benchmarks.md
#   make hammer      random scenarios, under sanitizers, for HAMMER_SECONDS= each
#   make chaos       a supervised bot in a bad network, for CHAOS_SECONDS=; make soak does so for SOAK_SECONDS=
#   make fuzz        an hour for each fuzzer, or FUZZ_SECONDS=; prints the tools that are missing
#   make wheels      wheels for other Linux systems, of every CPython found, in dist/; TARGETS= names the systems
#   make test-wheels installs those for this machine without a compiler, and runs all tests that need no sources
#   make test-same-wheels builds them in another directory, and compares the bytes
#   make test-c test-c-windows test-asan test-debug test-fuzz lint bench docs clean
#
#   PYTHON=python3.12 make test     uses another interpreter than python3

PYTHON ?= python3
VENV ?= .venv
VERSIONS ?= 3.10 3.11 3.12 3.13 3.14 3.15

version := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
bin := $(VENV)/bin
# The names of the stamp files contain the version, so another PYTHON builds another .venv.
installed := $(VENV)/.installed-$(version)
testing := $(VENV)/.testing-$(version)
tools := $(VENV)/.tools-$(version)
benching := $(VENV)/.benching-$(version)
built := build/.built-$(version)
crate := wsfast/_rust
# All builds of the crate share this directory, so cargo compiles its dependencies once.
export CARGO_TARGET_DIR := $(CURDIR)/build/cargo
# Empty means that Python writes bytecode. Images of containers often forbid it, and then each of the hundreds of processes
# that the tests start compiles all its modules.
export PYTHONDONTWRITEBYTECODE :=
sources := setup.py tools/binding.py tools/toolchain.py $(wildcard wsfast/*.pxd wsfast/*/*.p[yx][xd] wsfast/*/*/*.p[yx][xd] wsfast/core/*.[ch]) \
    $(addprefix $(crate)/,wsfast_rust.h build.rs Cargo.toml Cargo.lock) $(shell find $(crate)/src -name '*.rs')
stubs := $(subst /,.,$(patsubst %.pyi,%,$(wildcard wsfast/_engine/*.pyi wsfast/_engine/*/*.pyi wsfast/asyncio/_*.pyi wsfast/supervisor/_*.pyi) wsfast/sync/_messaging.pyi))
python_code := setup.py tools wsfast tests bench docs examples
c_code := $(wildcard wsfast/core/*.[ch] tests/core/*.[ch] tests/fuzz/*.[ch] bench/*/*.[ch])

.PHONY: demo test plan test-all test-c test-asan test-fuzz hammer-hypothesis fuzz fuzz-minimise pytest lint lint-python lint-types lint-cython lint-c lint-rust test-rust bench bench-docs bench-quick bench-smoke docs clean check hammer hammer-listener hammer-crossing test-debug test-debug-bout debug-tests debug-tests-bout hammer-awaitable test-miri test-rust-thread test-rust-address hammer-blocking chaos chaos-minute soak wheels test-wheels test-same-wheels third-party
# Targets run one after another, except those that `test` runs side by side.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
.DELETE_ON_ERROR:

demo: $(built)
	@echo "[3/3] comparing wsfast with picows (about 40 s)"
	@$(bin)/python -m bench.demo
	@printf '\nA supervised feed, whose connection is replaced three times (examples/rollover.py):\n'
	@$(bin)/python examples/rollover.py

plan:
	@echo "make test: ten minutes on two processors, in six steps:"
	@echo "  1-3  installs and builds, the first time (2 min)"
	@echo "  4    linters, types, documentation, C and Rust tests (80 s): make lint docs test-c test-rust test-fuzz"
	@echo "  5    memory tests under sanitizers, short benchmarks and chaos (100 s): make test-asan bench-smoke chaos-minute"
	@echo "  6    all tests of the clients (5 min): make pytest, or .venv/bin/pytest tests/engine"

# Every part runs, whatever became of those before it, and build/parts keeps its output. If some failed, the last lines name
# them and the tests that failed. In any case the last line is pytest's, with its counts.
parts := build/parts

test: plan $(testing) $(tools) $(built)
	@rm -rf $(parts) && mkdir -p $(parts)
	$(call part,4,linters and documentation; C and Rust tests; a build with sanitizers,80)
	@$(beside) -j2 $(asan)/.built $(addprefix part-,lint-python lint-types lint-cython lint-c lint-rust test-rust docs test-c test-fuzz) || true
	$(call part,5,memory tests under sanitizers; short bouts of the benchmarks and of chaos,100)
	@$(beside) -j3 part-test-asan part-bench-smoke part-chaos-minute
	$(call part,6,all tests of the clients,280)
	@$(call part_of_test,pytest) | tee $(parts)/pytest.txt
	@[ ! -e $(parts)/failed ] || { \
	    for part in $$(cat $(parts)/failed); do \
	        echo "$$part failed. All of its output is in $(parts)/$$part.txt"; \
	        grep -E '^(FAILED|ERROR) ' $(parts)/$$part.txt; \
	    done; \
	    grep -E '^=+ .* in [0-9.]+s' $(parts)/pytest.txt; exit 1; }

# Runs targets side by side, each to its end.
beside = $(MAKE) SIDE_BY_SIDE=1 --no-print-directory --keep-going
part_of_test = { $(MAKE) --no-print-directory $(1) 2>&1 || echo $(1) >> $(parts)/failed; }

part-%:
	@$(call part_of_test,$*) > $(parts)/$*.txt; cat $(parts)/$*.txt

# Tests wait more than they compute, so pytest runs three processes.
processes := -n 3 --dist worksteal

pytest: $(testing) $(built)
	$(call part,6,all tests of the clients,280)
	$(bin)/python -m pytest $(processes)

test-c:
	$(MAKE) --no-print-directory -C tests/core

# That it compiles for Windows, no more (docs/decisions/windows.md).
test-c-windows: $(installed)
	@$(bin)/python -m pip install --quiet ziglang
	$(MAKE) --no-print-directory -C tests/core windows WINDOWS_CC="$(CURDIR)/$(bin)/python -m ziglang cc -target x86_64-windows-gnu"

test-rust: | check
	MAKEFLAGS= cargo test --quiet --locked --manifest-path $(crate)/Cargo.toml

# These targets run the crate's model and its thread tests under Miri and the sanitizers of nightly Rust. A target prints a
# note if its tool is not installed. WSFAST_SEEDS sets the number of schedules.
nightly := cargo +nightly test --quiet --locked --manifest-path $(crate)/Cargo.toml
host := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
rust_source := $(shell rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library/Cargo.lock

test-miri:
	@if cargo +nightly miri --version >/dev/null 2>&1 && [ -f "$(rust_source)" ]; then \
	    CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/miri cargo +nightly miri test --quiet --locked \
	        --manifest-path $(crate)/Cargo.toml -- model_tests buffer; \
	else \
	    echo "skipped Miri. To install it: rustup toolchain install nightly --component miri,rust-src"; \
	fi

test-rust-thread test-rust-address: test-rust-%:
	@if [ -f "$(rust_source)" ]; then \
	    CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/$* RUSTFLAGS=-Zsanitizer=$* ASAN_OPTIONS=detect_leaks=0 \
	        $(nightly) -Zbuild-std --target $(host) model_tests; \
	else \
	    echo "skipped the $* sanitizer for Rust. To install it: rustup toolchain install nightly --component rust-src"; \
	fi

# Copies the sources for a build of another kind, with the C code that Cython has made, which is the same for all builds.
copy = tar -cf - --exclude='*.so' --exclude=target setup.py tools pyproject.toml README.md LICENSE THIRD-PARTY.txt sbom.cdx.json wsfast \
    $$(ls -d build/cython 2>/dev/null) | tar -xf - -C

# The memory tests, on modules that are compiled with AddressSanitizer and UBSan.
asan := build/asan
preload := $(shell $(CC) -print-file-name=libasan.so 2>/dev/null) $(shell $(CC) -print-file-name=libubsan.so 2>/dev/null)

# The files that hold memory tests: a sanitizer would take long to import all others.
memory = -m memory $(shell grep -rl --include='test_*.py' 'mark\.memory' tests)

# The command prefix that runs a program on these modules.
with_asan := LD_PRELOAD="$(preload)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=$(CURDIR)/$(asan):$(CURDIR)/tests

test-asan: $(asan)/.built
	$(with_asan) $(bin)/pytest -q $(memory) $(processes)

$(asan)/.built: $(testing) $(built)
	@mkdir -p $(asan)
	@$(copy) $(asan)
	cd $(asan) && WSFAST_DEBUG=1 WSFAST_SANITIZE=address,undefined $(CURDIR)/$(bin)/python setup.py --quiet build_ext --inplace
	@touch $@

# The generators of the tests, with new seeds in each run.
HAMMER_SECONDS ?= 600

hammer: hammer-listener hammer-crossing hammer-awaitable hammer-blocking hammer-hypothesis

hammer-listener: $(asan)/.built
	$(with_asan) $(bin)/python -m scenarios --seconds $(HAMMER_SECONDS)

# Connections that read inside each other's reads, and loops in other threads.
hammer-crossing: $(asan)/.built
	$(with_asan) $(bin)/python -m scenarios.crossing --seconds $(HAMMER_SECONDS)

hammer-awaitable: $(asan)/.built
	$(with_asan) $(bin)/python -X faulthandler -m scenarios.awaitable $(HAMMER_SECONDS)

# Plays random scenarios of the blocking client, then random schedules of the crate under each sanitizer.
hammer-blocking: $(asan)/.built
	$(with_asan) $(bin)/python -m scenarios.blocking $(HAMMER_SECONDS)
	WSFAST_SEEDS=$(HAMMER_SECONDS) $(MAKE) --no-print-directory test-rust test-rust-thread test-rust-address

# A supervised bot, an exchange, and a network with faults between them. In the end every message is accounted for. Then a
# thousand rollovers, and the windows at random.
CHAOS_SECONDS ?= 600

chaos: $(testing) $(built)
	PYTHONPATH=tests $(bin)/python -X dev -m scenarios.chaos $(CHAOS_SECONDS)
	PYTHONPATH=tests $(bin)/python -m scenarios.rollovers 10000
	ROLLOVERS=1000 $(bin)/python -m pytest --hypothesis-profile=hammer tests/supervisor/test_exchange.py

# The same for hours, with few faults. Each hour adds memory, descriptors and latencies to the report.
SOAK_SECONDS ?= 86400
SOAK_PERIOD ?= 3600
SOAK_REPORT ?= build/soak.md

# It waits most of the time: a third of a processor.
chaos-minute: $(testing) $(built)
	PYTHONPATH=tests $(bin)/python -X dev -m scenarios.chaos 60 1

soak: $(testing) $(built)
	PYTHONPATH=tests $(bin)/python -m scenarios.soak $(SOAK_SECONDS) $(SOAK_REPORT) $(SOAK_PERIOD)

# hypothesis with new seeds in each run, and EXAMPLES= for each test. `make test` uses the same examples every time.
hammer-hypothesis: $(testing) $(built)
	$(bin)/python -m pytest --hypothesis-profile=hammer tests/project/test_fuzz.py tests/engine/test_frames_random.py tests/opening/test_handshake.py \
	    tests/engine/test_deflate.py tests/opening/test_uri.py tests/engine/test_messages.py tests/faces/test_streaming.py

# The memory tests and the scenarios on a debug build of CPython, Debian's python3-dbg, in a .venv of its own.
DEBUG_PYTHON ?= python3-dbg
debug_tree := $(CURDIR)/build/debug

# The tests that profit most from a debug build. They take half a minute.
debug_bout := tests/awaitable/test_collector.py tests/project/test_fuzz.py tests/engine/test_memory.py

test-debug test-debug-bout: | check
	@if $(DEBUG_PYTHON) -c 'import sys; sys.exit(not hasattr(sys, "gettotalrefcount"))' 2>/dev/null; then \
	    $(MAKE) --no-print-directory $(subst test-debug,debug-tests,$@); \
	else \
	    echo "skipped the tests on a debug build of CPython: $(DEBUG_PYTHON) was not found (Debian: apt-get install python3-dbg)"; \
	fi

debug-tests: $(debug_tree)/.built
	$(with_debug) .venv-debug/bin/pytest -q $(memory) $(processes)

debug-tests-bout: $(debug_tree)/.built
	$(with_debug) .venv-debug/bin/pytest -q -m memory $(debug_bout)

# multidict's extension modules crash a debug build. As with AddressSanitizer, do not use `python -m`: it would import the
# modules of this directory first.
with_debug = MULTIDICT_NO_EXTENSIONS=1 PYTHONPATH=$(debug_tree):$(CURDIR)/tests

$(debug_tree)/.built: pyproject.toml $(sources)
	@[ -x .venv-debug/bin/python ] || $(DEBUG_PYTHON) -m venv .venv-debug
	@.venv-debug/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@.venv-debug/bin/python -m pip install --quiet --group test
	@mkdir -p $(debug_tree)
	@$(copy) $(debug_tree)
	cd $(debug_tree) && PYTHONWARNINGS=ignore WSFAST_DEBUG=1 $(CURDIR)/.venv-debug/bin/python -m pip install --quiet --no-build-isolation --editable .
	@touch $@

# Replays the kept corpora of the C targets. pytest replays those of the Python targets.
test-fuzz:
	$(MAKE) --no-print-directory -C tests/fuzz replay

# libFuzzer runs the C core, and atheris everything else. The compiled modules are instrumented, so atheris sees which code
# an input reaches in them. Each target runs for FUZZ_SECONDS and leaves its findings in build/fuzz/findings.
FUZZ_SECONDS ?= 3600
CLANG ?= clang
fuzzing := $(CURDIR)/build/fuzz
fuzz_tree := $(fuzzing)/tree
# Runs in the directory of those modules, because python -m imports from the current directory first.
fuzz_python = cd $(fuzz_tree) && LD_PRELOAD="$$($(CURDIR)/$(bin)/python -c 'import atheris; print(atheris.path())')/asan_with_fuzzer.so" PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:malloc_context_size=3:quarantine_size_mb=16 \
    PYTHONPATH=$(CURDIR)/tests $(CURDIR)/$(bin)/python -m fuzz
fuzz_targets := connection handshake location negotiation tunnel

.PHONY: fuzz-kept
fuzz-kept:
	@$(MAKE) --no-print-directory -C tests/fuzz kept

fuzz: $(fuzz_targets:%=fuzz-%)
	$(MAKE) --no-print-directory -C tests/fuzz run FUZZ_SECONDS=$(FUZZ_SECONDS) CLANG=$(CLANG)

$(fuzz_targets:%=fuzz-%): fuzz-%: $(fuzz_tree)/.built fuzz-kept
	@mkdir -p $(fuzzing)/corpus/$* $(fuzzing)/findings
	$(fuzz_python) $* -max_total_time=$(FUZZ_SECONDS) -timeout=20 -max_len=2000 -print_final_stats=1 \
	    -artifact_prefix=$(fuzzing)/findings/$*- $(fuzzing)/corpus/$* $(fuzzing)/kept/$*

# Replaces the kept corpora with the fewest inputs that reach the same code.
fuzz-minimise: $(fuzz_tree)/.built fuzz-kept
	for target in $(fuzz_targets); do \
	    rm -rf $(fuzzing)/merged && mkdir -p $(fuzzing)/merged $(fuzzing)/corpus/$$target && \
	    ($(fuzz_python) $$target -merge=1 $(fuzzing)/merged $(fuzzing)/kept/$$target $(fuzzing)/corpus/$$target) && \
	    rm -rf $(fuzzing)/kept/$$target && mv $(fuzzing)/merged $(fuzzing)/kept/$$target && \
	    $(MAKE) --no-print-directory -C tests/fuzz pack-$$target || exit 1; \
	done
	$(MAKE) --no-print-directory -C tests/fuzz minimise CLANG=$(CLANG)

$(fuzz_tree)/.built: $(testing) $(built)
	@$(MAKE) --no-print-directory -C tests/fuzz check-clang CLANG=$(CLANG)
	@$(bin)/python -m pip install --quiet --group fuzz \
	    || $(call stop,atheris could not be installed: it does not exist for every Python and processor)
	@mkdir -p $(fuzz_tree)
	@$(copy) $(fuzz_tree)
	cd $(fuzz_tree) && CC=$(CLANG) LDSHARED="$(CLANG) -shared" WSFAST_SANITIZE=address,undefined,fuzzer-no-link \
	    $(CURDIR)/$(bin)/python setup.py --quiet build_ext --inplace
	@touch $@

lint: lint-python lint-types lint-cython lint-c lint-rust

lint-python: $(tools)
	$(bin)/ruff check $(python_code)
	$(bin)/ruff format --check $(python_code)

lint-types: $(tools) $(built)
	$(bin)/mypy
	$(bin)/python -m mypy.stubtest --allowlist tests/stubtest_allowlist.txt $(stubs)

# cython-lint starts pycodestyle by its name, so the PATH must contain it.
lint-cython: $(tools)
	PATH="$(CURDIR)/$(bin):$$PATH" cython-lint wsfast examples

lint-c: $(tools)
	$(bin)/clang-format --dry-run -Werror $(c_code)

lint-rust: | check
	cargo fmt --check --manifest-path $(crate)/Cargo.toml
	cargo fmt --check --manifest-path bench/floor/rust/Cargo.toml
	MAKEFLAGS= cargo clippy --quiet --locked --all-targets --manifest-path $(crate)/Cargo.toml -- -D warnings

# The whole suite. It keeps what it has measured and goes on there if it is interrupted. It ends after MINUTES=, or when
# each case has its repeats; REPEATS=2 wants fewer of them, and SECTIONS="rr batch" measures a part. `make bench-docs`
# writes the tables, plots and pages again from the files in docs/benchmarks.
MINUTES := 48

bench: $(benching) $(built)
	$(bin)/python -m bench.report $(SECTIONS) $(if $(REPEATS),--repeats $(REPEATS)) --minutes $(MINUTES) --docs

bench-docs: $(benching) $(built)
	$(bin)/python -m bench.report --write

# `bench-quick` measures every work in three minutes. `bench-smoke`, which is a part of `test`, checks that every work runs.
bench-quick bench-smoke: bench-%: $(testing) $(built)
	@if $(bin)/python -c 'import os, sys; sys.exit(len(os.sched_getaffinity(0)) < 2)' 2>/dev/null; then \
	    $(bin)/python -m pytest bench --$* --quiet $(if $(filter smoke,$*),--benchmark-quiet); \
	else \
	    echo "skipped the benchmarks: they need Linux and two cores"; \
	fi

docs: $(tools) $(built)
	$(bin)/sphinx-build -q -W --keep-going docs build/docs

# The interpreter of $$version, in the shell's variable found; empty if there is none.
find_python = found=; for python in $(PYTHONS:%=%/python$$version) python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
	        if $$python -c "" 2>/dev/null; then found=$$python; break; fi; \
	    done

# Wheels for older systems, for musl and for other processors, in dist/.
TARGETS ?= $(shell uname -m)-gnu

wheels: $(installed)
	@$(bin)/python -m pip install --quiet --group wheels
	@for version in $(VERSIONS); do $(find_python); \
	    for target in $${found:+$(TARGETS)}; do \
	        $(bin)/python tools/wheels.py --arch $${target%-*} --libc $${target#*-} dist $$found || exit 1; \
	    done; \
	done

# An empty environment, a PATH with nothing else in it, and the tests without the sources beside them.
WHEEL_TESTS ?= tests
wheel_tree := $(CURDIR)/build/wheels/tree

test-wheels:
	@rm -rf $(wheel_tree) && mkdir -p $(wheel_tree) && cp -r tests bench docs examples tools *.md pyproject.toml $(wheel_tree)
	@for version in $(VERSIONS); do $(find_python); \
	    wheel=$$(ls dist/wsfast-*-cp$$(echo $$version | tr -d .)-manylinux*_$$(uname -m).whl 2>/dev/null); \
	    if [ -z "$$found" ] || [ -z "$$wheel" ]; then echo "$$version: no interpreter or no wheel"; continue; fi; \
	    wheel_bin=$(CURDIR)/build/wheels/test-$$version/bin; \
	    $$found -m venv --clear $${wheel_bin%/bin} && \
	    $$found tools/step.py "[$$version] installing $$wheel without a compiler" 5 build/logs/wheel-$$version.txt \
	        env PATH=$$wheel_bin python -m pip install --only-binary :all: $$wheel && \
	    (cd / && PATH=$$wheel_bin python -m wsfast doctor >/dev/null) && \
	    $$wheel_bin/python -m pip install --quiet --upgrade "pip>=25.1" && \
	    $$wheel_bin/python -m pip install --quiet --group test && \
	    (cd $(wheel_tree) && $$wheel_bin/pytest -q -n 2 --dist worksteal -m "not checkout" $(WHEEL_TESTS)) || exit 1; \
	done

# The same sources make the same bytes in another directory.
again := $(CURDIR)/build/wheels/again

test-same-wheels: wheels
	@rm -rf $(again) && mkdir -p $(again) && $(copy) $(again)
	@for version in $(VERSIONS); do $(find_python); \
	    for target in $${found:+$(TARGETS)}; do \
	        $(bin)/python $(again)/tools/wheels.py --arch $${target%-*} --libc $${target#*-} $(again)/dist $$found || exit 1; \
	    done; \
	done
	@for wheel in $(again)/dist/*.whl; do cmp $$wheel dist/$${wheel##*/} || exit 1; done; echo "the wheels are the same"

# The notices of the Rust packages in a wheel, and a list of them for machines (CycloneDX). A test compares both with Cargo.lock.
third-party:
	cd $(crate) && cargo about generate --locked about.hbs -o $(CURDIR)/THIRD-PARTY.txt
	cd $(crate) && cargo about generate --locked about-sbom.hbs -o $(CURDIR)/sbom.cdx.json

test-all:
	@summary=; failed=0; \
	for version in $(VERSIONS); do \
	    $(find_python); \
	    run="$(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=$$found"; \
	    if [ -z "$$found" ]; then result="not found"; \
	    elif ! $$run build/.built-$$version; then result="FAILED to build"; failed=1; \
	    elif ! $$run .venv-$$version/.testing-$$version; then result="built; what the tests need cannot be installed"; \
	    elif $$run pytest; then result="passed"; \
	    else result="FAILED"; failed=1; fi; \
	    summary="$$summary\n$$version: $$result"; \
	done; \
	printf "$$summary\n"; exit $$failed

clean:
	rm -rf build dist *.egg-info .benchmarks .hypothesis .mypy_cache .ruff_cache wsfast/*.so
	find wsfast tests bench docs examples -name __pycache__ -prune -exec rm -rf {} +

# ---- the environment

, := ,
stop = { echo "$(1)" >&2; exit 1; }

# tools/toolchain.py prints what is missing, and the command that installs it.
check:
	@command -v $(PYTHON) >/dev/null || $(call stop,There is no $(PYTHON). Install CPython 3.10 or newer or name one: PYTHON=... make)
	@CC="$(CC)" $(PYTHON) tools/toolchain.py
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(call stop,$(PYTHON) cannot make virtual environments. To install that: apt-get install python3-venv)

# The steps of `make demo` and of `make test` are numbered. A step that was done before is left out.
steps := $(if $(filter demo,$(MAKECMDGOALS)),3,6)
# $(call part,...) announces a step of `make test` that prints its own output.
part = @$(if $(filter test,$(MAKECMDGOALS)),echo "[$(1)/$(steps)] $(2) (about $(3) s)",true)
# $(call step,number,what it does,seconds on two processors,name of its log) is followed by a command.
step = $(PYTHON) tools/step.py "[$(1)/$(steps)] $(2)" $(3) build/logs/$(4).txt

# cargo needs nothing that pip installs, so it compiles the crate meanwhile; setup.py finds it done.
$(installed): pyproject.toml setup.py | check
	@[ "$$($(bin)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$(version)" ] \
	    || $(PYTHON) -m venv --clear $(VENV)
	@MAKEFLAGS= cargo build --quiet --locked --manifest-path $(crate)/Cargo.toml $(if $(WSFAST_DEBUG),,--release) & \
	$(call step,1,installing what wsfast and its peers need into $(VENV),30,packages) sh -ec \
	    '$(bin)/python -m pip install --upgrade "pip>=25.1"; $(bin)/python -m pip install --group run' \
	&& $(call step,2,building with Cython$(,) C and Rust,90,build) \
	    env PYTHONWARNINGS=ignore $(bin)/python -m pip install --verbose --no-build-isolation --editable .; \
	result=$$?; wait; exit $$result
	@touch $@ $(built)

$(testing): $(installed)
	@$(call step,3,installing what the tests need,20,packages-tests) $(bin)/python -m pip install --group test
	@touch $@

# What the whole suite compares and draws with. uringcore exists for some versions of Python only, and may need a compiler.
$(benching): $(testing)
	@echo "installing what the benchmarks need into $(VENV)"
	@$(bin)/python -m pip install --quiet --group bench
	@$(bin)/python -m pip install --quiet uringcore || echo "uringcore could not be installed: its rows will say so"
	@touch $@

$(tools): $(installed)
	@$(call step,3,installing linters and Sphinx,20,packages-tools) $(bin)/python -m pip install --group lint --group docs
	@touch $@

# The installation has built everything, perhaps just now.
$(built): $(installed) $(sources)
	@[ -e $@ ] && [ -z "$$(find $(installed) $(sources) -newer $@)" ] \
	    || $(call step,2,building what has changed,5,build) $(bin)/python setup.py build_ext --inplace
	@touch $@
