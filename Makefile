# Radix Islands. `make help` lists everything. Nothing here needs more than python3, make and (for root targets) apt.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
export RADIX_ISLANDS_CACHE ?= $(HOME)/.cache/radix-islands
PYTHON ?= /usr/bin/python3
UV := $(RADIX_ISLANDS_CACHE)/tools/uv/bin/uv

.PHONY: help
help: ## List every target
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 18

# --- environments -------------------------------------------------------------------------------------------------

$(UV):
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { [ "$$(id -u)" = 0 ] || { echo "python3-venv is missing: apt-get install python3-venv"; exit 1; }
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null; }
	$(PYTHON) -m venv $(RADIX_ISLANDS_CACHE)/tools/uv
	$(RADIX_ISLANDS_CACHE)/tools/uv/bin/python -m pip -q --disable-pip-version-check install uv==0.13.9

.venv/.ready: locks/dev.txt locks/build.txt pyproject.toml | $(UV)
	$(UV) venv -q --clear --python $(PYTHON) .venv
	$(UV) pip install -q --python .venv/bin/python --require-hashes -r locks/dev.txt -r locks/build.txt
	$(UV) pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e .
	touch $@

.PHONY: venv
venv: .venv/.ready ## .venv: operator, gate report, development tools (no torch)

# The 5.7 GB of torch and SGLang live once per machine, keyed by their locks; .venv-engine is a thin layer over them.
ENGINE_KEY := $(shell cat locks/engine-cpu.txt locks/sglang.txt | sha256sum | cut -c1-16)
ENGINE_BASE := $(RADIX_ISLANDS_CACHE)/engine-venv/$(ENGINE_KEY)

$(ENGINE_BASE)/.ready: | $(UV)
	@echo "engine venv: torch and SGLang on CPU, about 6 GB, about 1 minute, once per machine"
	rm -rf $(ENGINE_BASE)
	$(UV) venv -q --clear --python $(PYTHON) $(ENGINE_BASE)
	$(UV) pip install -q --python $(ENGINE_BASE)/bin/python --compile-bytecode --require-hashes -r locks/engine-cpu.txt
	$(UV) pip install -q --python $(ENGINE_BASE)/bin/python --compile-bytecode --no-deps --require-hashes -r locks/sglang.txt
	touch $@

.venv-engine/.ready: locks/engine-cpu.txt locks/sglang.txt locks/engine-test.txt locks/build.txt pyproject.toml $(ENGINE_BASE)/.ready | $(UV)
	$(UV) venv -q --clear --python $(PYTHON) .venv-engine
	echo $(ENGINE_BASE)/lib/python3.11/site-packages > .venv-engine/lib/python3.11/site-packages/engine-base.pth
	$(UV) pip install -q --python .venv-engine/bin/python --require-hashes -r locks/engine-test.txt -r locks/build.txt
	$(UV) pip install -q --python .venv-engine/bin/python --no-deps --no-build-isolation -e .
	touch $@

.PHONY: venv-engine
venv-engine: .venv-engine/.ready ## .venv-engine: adds SGLang on CPU

# --- checks -------------------------------------------------------------------------------------------------------

# Types go beside the tests, whose gates wait more than they compute. Bytecode is kept even where the environment forbids
# it: else every worker and every process of a test compiles all that it imports, two thirds of what collecting takes.
.PHONY: check check-lint check-types check-unit
check: export PYTHONDONTWRITEBYTECODE =
check: check-lint ## Linters, formatter, strict types, import contracts, unit tests (no root, no torch)
	@$(MAKE) --no-print-directory -j2 -Otarget check-types check-unit  # nothing else here: make -n runs it
check-lint check-types check-unit: venv
check-lint:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
check-types:
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
check-unit:
	.venv/bin/python -m pytest tests/unit -q -n 2 --dist worksteal

.PHONY: testing
testing: ## Install what integration tests need of Debian, where it is missing: Chromium, g++, ninja (apt, as root)
	@PYTHONPATH=e2e $(PYTHON) -c 'from cluster.apt import TESTING, ensure; ensure(TESTING)'

# An engine computes on one core, and an operator waits for its API server more than it computes: two at a time.
TINY := $(RADIX_ISLANDS_CACHE)/models/tiny-gemma

.PHONY: integration integration-operator integration-engine integration-gate
integration: venv venv-engine testing integration-operator ## Tests on a real API server and on real engines (minutes)
	@$(MAKE) --no-print-directory -j2 -Otarget integration-engine integration-gate  # nothing else here: make -n runs it
integration-operator: venv
	.venv/bin/python -m pytest tests/integration/operator -q -n 2 --dist loadfile
integration-engine integration-gate: integration-%: venv-engine $(TINY)/config.json
	.venv-engine/bin/python -m pytest tests/integration/$* -q
$(TINY)/config.json: | venv-engine
	.venv-engine/bin/island-engine tiny-model $(TINY)

.PHONY: e2e
e2e: root venv venv-engine ## Tests in the real cluster: the story of the demo, bad input, the cluster itself (minutes)
	.venv/bin/python -m pytest e2e/scenarios/test_cluster.py -q
	.venv/bin/python -m pytest e2e/scenarios/test_readme.py e2e/scenarios/test_story.py e2e/scenarios/test_plugin.py \
	  e2e/scenarios/test_bad_input.py e2e/scenarios/test_chaos.py -q
	.venv/bin/python -m pytest e2e/scenarios/test_scale.py -q

.PHONY: test
test: check integration e2e ## Everything that CI checks

.PHONY: demo
demo: root venv venv-engine ## The main job, end to end, on real parts
	@PYTHONPATH=e2e .venv/bin/python -m demo

.PHONY: demo-scale
demo-scale: root venv venv-engine ## At production geometry: 96 agents on a paced Gemma 4 26B, islands on live, a pod forced out of step (12 minutes)
	@PYTHONPATH=e2e .venv/bin/python -m demo scale

# --- benchmarks ---------------------------------------------------------------------------------------------------

BENCHES := hold admission reuse overhead conservation arms best serving gate
SHOWN := $(addprefix engine/island_engine/bench/,cli.py report.py plot.py readme.py)
MEASURED := $(filter-out $(SHOWN),$(shell find engine/island_engine/islands engine/island_engine/bench engine/island_engine/paced -name '*.py') \
  engine/island_engine/plugin.py)
# SGLang's shared pool runs on its own platforms only, so its two arms do not on this CPU.
build/bench/serving.json: FLAGS = --arm lazy stock release islands --model-path build/tiny-gemma --pool 0.15 19968 --num-prompts 24 --input-len 512 --output-len 128 \
  -- --dtype float32 --page-size 64 --chunked-prefill-size 512
build/bench/gate.json: FLAGS = --model-path build/tiny-gemma
build/bench/gate.json: $(wildcard engine/island_engine/gate/*.py)

.PHONY: bench
bench: $(BENCHES:%=build/bench/%.json) ## Every benchmark: tables, JSON and PNG under build/bench; goes on where it was stopped (about an hour and a half)
	@for name in $(BENCHES); do echo; echo "$$name, measured $$(date -r build/bench/$$name.json '+%F %T')"; cat build/bench/$$name.txt; done

build/bench/%.json: $(MEASURED) | venv-engine
	@mkdir -p build/bench
	@case $* in serving|gate) .venv-engine/bin/island-engine tiny-model build/tiny-gemma;; esac
	@echo "bench $*"
	@OMP_NUM_THREADS=1 .venv-engine/bin/island-engine bench $* --json $@ --plot build/bench/$*.png $(FLAGS) > build/bench/$*.txt

.PHONY: bench-readme
bench-readme: venv ## Put what `make bench` measured into docs/bench and the README
	@.venv/bin/python -m island_engine.bench.readme --from build/bench

.PHONY: bench-operator
bench-operator: venv ## 1,000 InferenceServices on a real API server against their targets: docs/bench/operator.json (20 to 40 min, no root)
	@PYTHONPATH=e2e:tests .venv/bin/python -m bench_operator $(BENCH_OPERATOR)

.PHONY: docs
docs: venv ## The documentation as a site, under build/docs; open index.html
	@.venv/bin/island-operator crd --reference > docs/reference.md
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "build/docs/index.html (its search needs a server: python3 -m http.server -d build/docs)"

.PHONY: pictures
pictures: venv venv-engine ## Measure and draw the pictures of the documentation again (2 minutes)
	@.venv/bin/python docs/pictures/phases.py
	@OMP_NUM_THREADS=1 .venv-engine/bin/python -W ignore docs/pictures/occupancy.py

# --- cluster ------------------------------------------------------------------------------------------------------

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "this target makes namespaces and cgroups: run it as root"; exit 1; }

GPUS ?= 2

.PHONY: cluster-up cluster-down cluster-status images
cluster-up: root venv venv-engine ## A real single-node Kubernetes with GPUS=2 pretended GPUs; prints the KUBECONFIG line
	@e2e/cluster/cluster up --gpus $(GPUS)
cluster-down: root ## Take it down; leaves nothing
	@e2e/cluster/cluster down
cluster-status: ## What runs, and where its KUBECONFIG is
	@e2e/cluster/cluster status || [ $$? = 3 ]  # 3: there is none, and that was said
images: root venv ## Build the images of the Dockerfile without Docker; ENGINE=gpu or cpu: also SGLang whole; CHECK=1: compare two builds
	@e2e/cluster/cluster images $(if $(CHECK),--check) $(if $(ENGINE),--engine $(ENGINE))

.PHONY: format
format: venv ## Format and fix what the linters can fix
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

.PHONY: clean
clean: ## Remove what this checkout built (not the shared cache)
	rm -rf .venv .venv-engine build dist
