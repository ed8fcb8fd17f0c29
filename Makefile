# Targets of the repository. `make help` lists them; CI calls nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Test workers, for 2 cores: more gain little there and wait for each other. Set more on more cores.
JOBS ?= 2
# Keep Python's bytecode, whatever the shell says: each test starts several processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup build demo test format check sanitize sanitize-build nvidia fuzz soak bench gpu wheels-gpu wheel deb spank headers stubs clean

help:  ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) build  ## create .venv, install the dependencies, build the native parts
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "ready; next: . $(BIN)/activate && tandem --help (or make demo)",:)

$(STAMP): pyproject.toml packaging/check_prerequisites.sh
	@sh packaging/check_prerequisites.sh $(firstword $(PYTHON))
	@test -x $(BIN)/python || $(firstword $(PYTHON)) -m venv $(VENV)
	@echo "installing dependencies into $(VENV)"
	@$(BIN)/python -m pip install -q --upgrade pip "setuptools>=77"
	@$(BIN)/python -m pip install -q "pybind11>=3,<4" "ninja>=1.11" "nvidia-cuda-runtime>=13.0,<14"
	@# Start compiling now, on the core that pip leaves idle; pip's own build then waits for the end.
	@$(BIN)/python csrc/ninja_build.py >/dev/null & \
	  PYTHONWARNINGS=ignore $(BIN)/python -m pip install -q --no-build-isolation -e ".[dev]"
	@touch $@

build: $(STAMP)  ## rebuild the native parts that have changed
	@$(BIN)/python setup.py -q build_ext --inplace

demo: setup  ## run the demo: a server and two trainers share one GPU
	@$(BIN)/tandem demo $(DEMO)

test: setup  ## run the tests (FAST=1: only the quick ones)
	@$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(if $(FAST),-m "not gpu and not slow",-m "not gpu") $(TEST)

# Not symbolic links, whose targets are in the list anyway, nor sources that recorded files stem from.
CXX_FILES = find shim csrc client tests bench packaging -path tests/data -prune -o -type f -regex '.*\.\(cpp\|h\|cu\|c\)' -print

format: setup  ## format Python and C++ the way `make check` expects
	@$(BIN)/ruff format -q .
	@$(CXX_FILES) | xargs $(BIN)/clang-format -i

check: setup  ## check lint, format, types, layers, and that generated files are fresh
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(CXX_FILES) | xargs $(BIN)/clang-format --dry-run --Werror
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python packaging/check_calls.py
	@$(BIN)/python packaging/check_generated.py

sanitize: setup  ## run the C++ tests under ASan/UBSan, those with threads also under TSan
	@# TSan first: the longest of its programs then runs alongside others instead of after them.
	@$(BIN)/python tests/cpp/run.py --variant tsan asan

sanitize-build: $(STAMP)  ## compile what `make sanitize` runs, at idle priority
	@chrt --idle 0 $(BIN)/python tests/cpp/run.py --variant tsan asan --only-build

nvidia: setup  ## test with NVIDIA's own libraries, bare and under the shim; no GPU needed (fetches them)
	@test -n "$$TANDEM_NVIDIA_LIBRARIES" || $(BIN)/python packaging/nvidia_libraries.py
	@$(BIN)/python -m pytest -q tests/nvidia

fuzz: setup  ## fuzz the wire, the channel, the graph and the software GPU (needs clang; SECONDS=30)
	@$(BIN)/python tests/fuzz/run.py --seconds $(or $(SECONDS),30)

soak: setup  ## run 10,000 random driver programs and swap sequences (PROGRAMS=n SEQUENCES=n SEED=n)
	@$(BIN)/python tests/proof/soak.py --programs $(or $(PROGRAMS),10000) --seed $(or $(SEED),1) $(if $(RESULT),--result $(RESULT))
	@$(BIN)/python tests/shim/swap_soak.py --sequences $(or $(SEQUENCES),10000) --seed $(or $(SEED),1) $(if $(SWAP_RESULT),--result $(SWAP_RESULT))

bench: setup  ## measure against the budgets (BENCH=launch|gate|decide|..; all: python -m bench -h)
	@$(BIN)/python -m bench $(or $(BENCH),launch)

gpu:  ## run everything that needs a GPU (PART=a,b; DRY=1 on the software GPU)
	@PYTHON=$(PYTHON) DRY=$(DRY) PART=$(PART) bash bench/gpu/run.sh

wheels-gpu: $(STAMP)  ## fetch wheels that a GPU machine without a network lacks, into .whl/
	@$(BIN)/python bench/gpu/harness/wheels.py

wheel: $(STAMP)  ## build a wheel for glibc 2.28 or later, into dist/ (PYTHON="python3.11 python3.12": one for each)
	@$(BIN)/python packaging/wheel.py $(PYTHON)

deb: setup  ## build a Debian package of this checkout, into dist/ (fetches what Tandem needs)
	@$(BIN)/python packaging/deb/build.py

spank: DIST ?= dist
spank:  ## build the Slurm plugin, into dist/ (against Slurm's slurm/spank.h; CPPFLAGS=-I...)
	@echo '#include <slurm/spank.h>' | $(CC) $(CPPFLAGS) -E -o /dev/null - 2>/dev/null || \
	  { echo "error: no slurm/spank.h of the Slurm that is to load it; apt install libslurm-dev, or say CPPFLAGS=-I/opt/slurm/include" >&2; exit 1; }
	@mkdir -p $(DIST)
	@$(CC) $(CPPFLAGS) -O2 -Wall -Wextra $(CFLAGS) -fPIC -shared -o $(DIST)/spank_tandem.so packaging/slurm/spank_tandem.c
	@echo $(DIST)/spank_tandem.so

headers: $(STAMP)  ## extract the names that cuda.h exports, into csrc/api/ (ALL=1: every version on PyPI)
	@$(BIN)/python $(if $(ALL),packaging/headers.py,csrc/softgpu/generate_table.py --write-api csrc/api)

stubs: $(STAMP)  ## regenerate client/tandem/_wire from proto/
	@$(BIN)/python packaging/generate_stubs.py

clean:  ## remove build outputs, keep .venv
	@rm -rf build dist *.egg-info
