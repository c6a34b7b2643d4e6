# Petrov's table of contents: `make` alone prints it, in pipeline order. Every target sets up what it needs first.
MODEL ?= darcy
PRESET ?= quick
PYTHON ?= python3
RUN := runs/$(MODEL)-$(PRESET)
BIN := .venv/bin
APP := .venv/.app
DEV := .venv/.dev
TRITON := .runtime/triton-env/complete
CORPUS := .third_party/neuraloperator-0.3.0-py3-none-any.whl

.PHONY: help data train release export serve test check format bench docs clean programs
.NOTPARALLEL:

help: ## print this table
	@echo "make train export serve [MODEL=$(MODEL)] [PRESET=$(PRESET)]   is the whole story; make serve alone serves the released models"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

data: $(APP) ## generate and cache the samples of MODEL's PRESET (resumable, all cores)
	$(BIN)/python -m training data $(MODEL)-$(PRESET)

train: $(APP) ## train MODEL by PRESET (tiny, quick, laptop, paper) into runs/, resuming an interrupted run
	$(BIN)/python -m training fit $(MODEL)-$(PRESET) --resume

release: $(APP) ## make the run of MODEL and PRESET the released checkpoint; the next export publishes it
	@test -f $(RUN)/weights.safetensors || { echo "no finished run in $(RUN): make train MODEL=$(MODEL) PRESET=$(PRESET) first" >&2; exit 1; }
	mkdir -p checkpoints/$(MODEL)
	cp $(RUN)/weights.safetensors $(RUN)/config.json $(RUN)/card.json checkpoints/$(MODEL)/

export: $(APP) ## publish released checkpoints, and the run of MODEL and PRESET if there is one, to model_repository/
	$(BIN)/python -m export $$(ls -d checkpoints/*/ $(RUN)/weights.safetensors 2>/dev/null | sed 's|/weights.safetensors||')

serve: export $(TRITON) ## Triton and the gateway on http://127.0.0.1:8080, from a fresh clone too
	$(BIN)/python -m serving

test: $(DEV) $(CORPUS) $(TRITON) programs export ## the whole suite, real Triton included, from a fresh clone too
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile

check: $(DEV) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) $(TRITON) export ## every table and picture of figures, beside the rivals; QUICK=1 for a small version
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

docs: $(DEV) ## the reference documentation, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean: ## delete everything that can be made again, except data/ and runs/
	rm -rf .venv .runtime .third_party test-artefacts site
	git clean -fdxq model_repository

# Environments: what the application runs on, and the tools of its developers on top.
$(APP): pyproject.toml constraints.txt clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || { \
	  echo "expected Python 3.11 or 3.12 with venv (on Debian: apt install python3-venv) but $(PYTHON) is $$($(PYTHON) --version 2>&1); choose another with PYTHON=..." >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --group train --group export --group serve -c constraints.txt -e 'clients/python[cli,hdf5,grpc]'
	@if nvidia-smi >/dev/null 2>&1; then \
	  $(BIN)/python -m pip uninstall --yes onnxruntime && $(BIN)/python -m pip install -c constraints.txt onnxruntime-gpu; fi
	touch $@

# Triton's own environment: its wheel, and the NumPy that the wheel's Python stub works with.
$(TRITON): $(APP) serving/triton/environment.py
	$(BIN)/python -m serving.triton.environment
	touch $@

$(DEV): $(APP)
	$(BIN)/python -m pip install --group dev -c constraints.txt
	touch $@

# Debian's programs that some tests start: installed where we may, else those tests are skipped and say so.
programs:
	@command -v curl >/dev/null && command -v promtool >/dev/null && command -v chromium >/dev/null || { \
	  test "$$(id -u)" = 0 && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq --yes install --no-install-recommends curl prometheus chromium; } || true

# Fields made by others, which the physics is held against.
$(CORPUS): $(APP)
	$(BIN)/python -m pip download --quiet --no-deps neuraloperator==0.3.0 -d $(@D)
	touch $@
