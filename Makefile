# The shared vocabulary of this project. Every target builds what it needs; `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
OUT ?= results
SITE ?= gallery
SIZE ?= default
DATA ?= $(SADDLESCOPE_DATA)
WITH_DATA = $(if $(DATA),--data "$(DATA)")
# Their default size takes the embedded digits, so that it runs anywhere.
ON_MNIST := $(addprefix deep-relu/,figure-1 figure-4 conjecture-3 conjecture-4)

# The paper sizes that want a GPU, in the order of their worth; what an entry shares with one before it is read.
GPU_RUNS := gradual-rank/figure-4 gradual-rank/figure-1 concept-learning/figure-6 gradual-rank/figure-12 \
	gradual-rank/figure-20 gradual-rank/full-matrices deep-relu/figure-1 deep-relu/figure-4 gradual-rank/figure-16 \
	gradual-rank/figure-13 gradual-rank/figure-6 gradual-rank/rank-rise gradual-rank/rank-steps concept-learning/appendix-g gradual-rank/figure-18

.DEFAULT_GOAL := help
.PHONY: help setup demo reproduce gpu test test-slow lint docs bench wheel test-wheel gallery readme clean test-all test-platforms coverage survey test-newest test-oldest portable gpu-figure-4 explore

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# A comma would end an argument of `call`, so what to install are variables.
NEEDED := --editable '.[papers,explore]'
ALL := --editable '.[all]'

# Some builds of PyTorch carry 130 MB of programs for its own tests; packages' own tests are another 70 MB.
UNUSED = .venv/lib/python3*/site-packages/torch/test .venv/lib/python3*/site-packages/torch/bin/test_*

# uv installs in seconds what takes pip minutes, and PyTorch's CPU build (some gigabytes smaller) where there is no GPU.
# Where pip is told of another place to look, uv looks there; both trust the certificates of the system.
UV_SOURCES = links=$$(echo $${PIP_FIND_LINKS:-$$($(BIN)/python -m pip config get global.find-links 2>/dev/null)} | tr ' ' ','); \
	if test -n "$$links"; then export UV_FIND_LINKS="$$links"; else export UV_TORCH_BACKEND="$${UV_TORCH_BACKEND:-auto}"; fi

define install # $(call install,what): with the pinned versions of constraints.txt, by uv where it can be had
	@$(UV_SOURCES); \
	$(BIN)/uv pip install --system-certs --quiet --python $(BIN)/python -c constraints.txt $(1) \
		|| { echo "== Going on with pip, which takes some minutes more"; \
		$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt $(1); }
endef

.venv/ready: pyproject.toml constraints.txt
	@echo "== Building .venv with the pinned packages of constraints.txt (1.5 GB, once; about a minute)"
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 14) else "saddlescope needs Python 3.11 to 3.14; this is %d.%d. Name another with: make PYTHON=python3.11" % v)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv || echo "== No uv for this machine; pip takes a few minutes more"
	$(call install,$(NEEDED))
	@rm -rf $(UNUSED)
	@find .venv/lib/python3*/site-packages -type d -name tests -prune -exec rm -rf {} +
	@touch $@

.venv/tools: .venv/ready
	@echo "== Adding the developers' tools to .venv (another 1.3 GB, once; about a minute)"
	$(call install,$(ALL) --group dev)
	@touch $@

setup: .venv/tools ## build .venv with everything (every other target builds what it needs of it)
	@echo "== Done: . .venv/bin/activate"

# A smaller network than the entry's default, so that the demo ends with the other run.
DEMO_VIT := --set seeds=5,6,7 --set depth=3 --set embedding=64 --set heads=4 --set mlp=64 --set epochs=30

demo: .venv/ready ## run two reproductions side by side and build their gallery (three minutes)
	@echo "== About two minutes on two cores, the two runs side by side:"
	@echo "==   Figure 2: Algorithm 1 beside gradient flow, six initial scales"
	@echo "==   Figures 4, 5 and 15: a small vision transformer, the rank of what it learns"
	@mkdir -p $(OUT)
	@export OMP_NUM_THREADS=1 TTY_COMPATIBLE=0; \
	$(BIN)/saddlescope run gradual-rank/figure-4 $(DEMO_VIT) --out $(OUT) > $(OUT)/demo.txt & vit=$$!; trap 'kill $$vit' INT TERM; \
	$(BIN)/saddlescope run gradual-rank/figure-2 --out $(OUT); head=$$?; wait $$vit; vit=$$?; cat $(OUT)/demo.txt; rm $(OUT)/demo.txt; \
	test $$head -eq 0 -a $$vit -eq 0
	@$(BIN)/saddlescope gallery $(OUT) --site $(SITE)
	@echo "== Done: open $(SITE)/index.html in a browser"

explore: .venv/ready ## open the live page: move parameters and see stages change
	@$(BIN)/saddlescope explore --open

reproduce: .venv/ready ## run every reproduction of size SIZE (default), with DATA=DIR also on the papers' MNIST, and build the gallery
	@es=$$($(BIN)/python -c 'import sys; from saddlescope.reproduction import SIZES, entry_names, find_entry; size = sys.argv[1]; sys.exit(f"SIZE must be one of {SIZES}; got {size!r}.") if size not in SIZES else print(*(e for e in entry_names() if size in find_entry(e).sizes))' "$(SIZE)") || exit 1; for e in $$es; do echo "== $$e"; $(BIN)/saddlescope run $$e --size $(SIZE) --out $(OUT) $(WITH_DATA) || exit 1; done
	@test $(SIZE) != default -o ! -d "$(DATA)/mnist" || for e in $(ON_MNIST); do echo "== $$e on MNIST"; $(BIN)/saddlescope run $$e --set dataset=mnist --out $(OUT) $(WITH_DATA) || exit 1; done
	@$(BIN)/saddlescope gallery $(OUT) --site $(SITE)

gpu: .venv/ready ## run the paper sizes that need a GPU, most useful first, with DATA=DIR; rerun it to resume (docs/training-runs.md)
	@$(BIN)/python -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else "PyTorch found no GPU. Install its CUDA build into .venv, or run the entries without one: make reproduce SIZE=reduced DATA=DIR.")'
	@left=; for e in $(GPU_RUNS); do echo "== $$e"; $(BIN)/saddlescope run $$e --size paper --out $(OUT) $(WITH_DATA); s=$$?; test $$s -eq 0 -o $$s -eq 2 || exit 1; test $$s -eq 0 || left="$$left $$e"; done; $(BIN)/saddlescope gallery $(OUT) --site $(SITE); test -z "$$left" || { echo "== Left out, for the reasons above:$$left" >&2; exit 1; }

gpu-figure-4: .venv/ready ## Figure 4 at the paper's size for as many epochs as eight minutes of a GPU allow, with DATA=DIR (docs/training-runs.md)
	@CUBLAS_WORKSPACE_CONFIG=:4096:8 $(BIN)/python scripts/gpu_figure_4.py train $(WITH_DATA) --out $(OUT)/gpu-figure-4
	@$(BIN)/python scripts/gpu_figure_4.py join $(OUT)/gpu-figure-4 $(OUT)/gpu-figure-4/run.nc

gallery: .venv/ready ## build the gallery from the stored results
	@$(BIN)/saddlescope gallery $(OUT) --site $(SITE)

test: .venv/tools ## the test suite (minutes; fewer when run again, since compiled code is kept in .venv)
	@SADDLESCOPE_COMPILED="$(CURDIR)/.venv/compiled" PYTHONPYCACHEPREFIX="$(CURDIR)/.venv/bytecode" PYTHONDONTWRITEBYTECODE= \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal
	@$(BIN)/python scripts/surface.py

test-all: .venv/tools ## every test, the slow ones and the wheel in empty environments included (an hour)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
	@$(BIN)/python scripts/surface.py

# PyTorch keeps its pin, since an open range can pull gigabytes; TORCH=torch opens it. The developers' tools have no bounds.
TORCH = $(shell grep '^torch==' constraints.txt)
define test_with # $(call test_with,resolution): in an environment of its own, without constraints.txt
	@$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/$@
	@$(UV_SOURCES); add="$(BIN)/uv pip install --system-certs --quiet --python build/$@/bin/python $(ALL) $(TORCH)"; \
	eval "$$add --resolution $(1)" && eval "$$add --group dev"
	@OMP_NUM_THREADS=1 build/$@/bin/python -m pytest -m "not slow" -n 2 --dist worksteal
endef

test-newest: .venv/ready ## the test suite with the newest versions that pyproject.toml allows, on PYTHON
	$(call test_with,highest)

test-oldest: .venv/ready ## the test suite with the oldest versions that pyproject.toml allows, on PYTHON
	$(call test_with,lowest-direct)

portable: .venv/tools ## rerun quick sizes and the suites of theory and flow under other arithmetic (90 minutes; rerun to resume)
	@$(BIN)/python scripts/portable.py

coverage: .venv/tools ## the lines that the test suite runs (half as long again as the tests alone)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal --cov=saddlescope --cov-report=term:skip-covered

# What the files, processes and text of saddlescope meet on other systems, where no test of ours runs for real.
ON_OTHERS := store _shared ranks/tracker ranks/checkpoints ranks/lora cli sweeps explore reproduction/test_parallel_parts.py
WHEELS := $(BIN)/uv pip compile --system-certs --quiet --only-binary :all: -c constraints.txt --all-extras --group dev -o /dev/null

test-platforms: .venv/tools ## tests as if on Windows and on macOS, and wheels of all pinned packages for both
	@for s in x86_64-pc-windows-msvc aarch64-apple-darwin; do echo "== Wheels for $$s"; \
	MACOSX_DEPLOYMENT_TARGET=14.0 $(WHEELS) --python-platform $$s pyproject.toml || exit 1; done
	@for s in windows macos; do echo "== As if on $$s"; \
	SADDLESCOPE_LIKE=$$s PYTHONPATH="$(CURDIR)/tests/platforms" OMP_NUM_THREADS=1 \
	$(BIN)/python -m pytest -m "not slow and not browser" -n 2 --dist worksteal $(addprefix tests/,$(ON_OTHERS)) || exit 1; done

test-slow: .venv/tools ## the tests that take many minutes
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

lint: .venv/tools ## style, types, import laws, and the tables of verdicts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@for s in Linux Windows Darwin; do $(BIN)/pyright --pythonplatform $$s || exit 1; done
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/readme.py --check

readme: .venv/ready ## write README.md's line of totals and all tables of verdicts; entries without a stored run keep theirs
	@$(BIN)/python scripts/readme.py --add $(OUT)

survey: .venv/tools ## check the tracker on every model type of Transformers and write docs/models.json (an hour)
	@$(BIN)/python scripts/survey.py && $(BIN)/python scripts/survey.py --write

docs: .venv/tools ## build the documentation into build/docs
	@$(BIN)/python -m sphinx -W --keep-going -j 2 docs build/docs
	@echo "== Done: open build/docs/index.html"

bench: .venv/tools ## every benchmark, side by side with what one would use instead (BENCH="--again flow" for some)
	@$(BIN)/python benchmarks $(BENCH)

wheel: .venv/tools ## build the wheel and the source distribution into dist/
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build

test-wheel: .venv/tools ## install the wheel into empty environments, without extras and with each, and use it there
	@$(BIN)/python -m pytest -m slow tests/packaging

clean: ## remove what the targets made (results are kept: delete $(OUT) yourself)
	rm -rf .venv $(SITE) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
