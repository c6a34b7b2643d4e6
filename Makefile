# `make` lists the targets in the order of the pipeline. Every target first sets up what it needs.
MODEL ?= darcy
PRESET ?= quick
PYTHON ?= python3
# PROBLEM=heat.toml trains on your own data; the model is called what the problem file says.
ifdef PROBLEM
ifeq ($(origin MODEL),command line)
$(error MODEL=$(MODEL): expected no MODEL beside PROBLEM=$(PROBLEM), a problem file, which names the model)
endif
MODEL := $(shell sed -nE "s/^[[:space:]]*name[[:space:]]*=[[:space:]]*[\"']([^\"']*)[\"'].*/\1/p" '$(PROBLEM)' | head -n 1 | grep -xE '[a-z][a-z0-9_]*')
ifeq ($(MODEL),)
$(error $(PROBLEM): expected a problem file, which names the model in a to z, 0 to 9 and _, as in name = "heat")
endif
RECIPE := '$(PROBLEM)' --preset $(PRESET)
else
RECIPE := $(MODEL)-$(PRESET)
endif
RUN := runs/$(MODEL)-$(PRESET)
TRAIN := make train $(if $(PROBLEM),PROBLEM=$(PROBLEM),MODEL=$(MODEL)) PRESET=$(PRESET)
# The weights beside the recipe of a training that has not ended may be those of an earlier one.
ENDED = test ! -f $(RUN)/weights.safetensors -o ! -e $(RUN)/recipe.json || { echo "the training in $(RUN) has not ended: $(TRAIN) goes on with it" >&2; exit 1; }
NAMED := $(PROBLEM)$(findstring command line,$(origin MODEL) $(origin PRESET))
FINISHED = @test -f $(RUN)/weights.safetensors || { echo "no finished run in $(RUN): $(TRAIN) first" >&2; exit 1; }; $(ENDED)
BIN := .venv/bin
SERVE := .venv/.serve
READ := .venv/.read
APP := .venv/.app
DEV := .venv/.dev
TRITON := .runtime/triton-env/complete
PYTEST = $(BIN)/python -m pytest -n $$(($$(nproc) < 3 ? $$(nproc) + 1 : 4)) --dist loadfile
CORPUS := .third_party/neuraloperator-0.3.0-py3-none-any.whl

# Further arguments of pip, such as the index of PyTorch's wheels without CUDA.
PIP_ARGS ?=

.PHONY: help describe data train release export published requirements serve test test-deep check check-style check-types format bench docs clean programs problem
.NOTPARALLEL:

help: ## print this list
	@echo "make serve                                      serve the released models"
	@echo "make train export serve MODEL=darcy             train a model and serve it, too"
	@echo "make describe FILE=heat.h5 OUTPUTS=temperature  write heat.toml, the problem file"
	@echo "make train export serve PROBLEM=heat.toml       train a model of your own data"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Nothing is installed before a file is named. Files of torch.save are read with torch.
describe: $(if $(FILE),$(if $(filter %.pt %.pth,$(FILE)),$(APP),$(READ))) ## write the problem file of FILE, a data file, a pattern or a folder
	@test -n '$(FILE)' || { echo "name your data: make describe FILE=heat.h5" >&2; exit 1; }
	@$(BIN)/python -m training describe --write $(if $(OUTPUTS),--outputs '$(OUTPUTS)') -- '$(FILE)'

data: $(APP) ## generate the samples for MODEL and PRESET (resumes, uses all cores)
	$(BIN)/python -m training $(if $(PROBLEM),check '$(PROBLEM)',data $(MODEL)-$(PRESET))

train: $(if $(PROBLEM),problem) $(APP) ## train MODEL with PRESET (tiny, quick, laptop, paper) into runs/ (resumes)
	$(BIN)/python -m training fit $(RECIPE) --resume

release: $(APP) ## make the run of MODEL and PRESET the released checkpoint, and export it
	$(FINISHED)
	rm -rf checkpoints/$(MODEL)/.new
	mkdir -p checkpoints/$(MODEL)/.new
	cp $(RUN)/weights.safetensors $(RUN)/config.json $(RUN)/card.json $(wildcard $(RUN)/calibration.safetensors $(RUN)/examples.safetensors) checkpoints/$(MODEL)/.new/
	rm -f checkpoints/$(MODEL)/calibration.safetensors checkpoints/$(MODEL)/examples.safetensors
	mv checkpoints/$(MODEL)/.new/* checkpoints/$(MODEL)/
	rmdir checkpoints/$(MODEL)/.new
	$(BIN)/python -m export checkpoints/$(MODEL)
	$(BIN)/python -m export.released renew checkpoints/$(MODEL)

export: $(APP) published ## export the run of MODEL and PRESET (unset, and without a run: the released models)
	$(if $(NAMED),$(FINISHED),@$(ENDED))
	$(BIN)/python -m export $$(test -f $(RUN)/weights.safetensors && echo $(RUN) || ls -d checkpoints/*/)

serve: requirements $(if $(PETROV_TRITON),,$(TRITON)) published ## start Triton and the gateway on http://127.0.0.1:8080
	$(BIN)/python -m serving

# One process more than processors: tests wait for the services that they start.
test test-deep: $(DEV) $(CORPUS) $(TRITON) programs published
test: ## run the test suite, with a real Triton and a real browser
	$(PYTEST)

test-deep: ## run the tests that the suite leaves out
	$(PYTEST) -m deep

check: check-style check-types ## run ruff, mypy --strict and import-linter

check-style: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(DEV)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) $(TRITON) published ## measure tables of the documentation; QUICK=1 tries their programs in minutes
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

docs: $(DEV) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean: ## delete all generated files except data/ and runs/
	rm -rf .venv .runtime .third_party test-artefacts site .model_repository.staging
	git clean -fdxq model_repository

# A problem file that is not ready is refused before torch is installed.
problem: $(READ)
	@$(BIN)/python -m training check --no-values '$(PROBLEM)'

# What the machine must have, checked before anything is downloaded.
requirements:
	@$(PYTHON) deploy/requirements.py

# The released versions, which need no torch.
published: $(SERVE)
	@$(BIN)/python -m export.released install checkpoints/*/

# The Python environments: the packages of the service, those of training and export, and the tools for development.
$(SERVE): pyproject.toml constraints.txt clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || { \
	  echo "expected Python 3.11 or 3.12 with venv (on Debian: apt install python3-venv) but $(PYTHON) is $$($(PYTHON) --version 2>&1); choose another with PYTHON=..." >&2; exit 1; }
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv  # also after Ctrl-C within this line
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install $(PIP_ARGS) --group serve -c constraints.txt -e 'clients/python[cli,hdf5,grpc]'
	touch $@

$(READ): $(SERVE)
	$(BIN)/python -m pip install $(PIP_ARGS) --group describe -c constraints.txt
	touch $@

$(APP): $(SERVE)
	$(BIN)/python -m pip install $(PIP_ARGS) --group export --group research -c constraints.txt
	touch $@

# The environment of Triton: its wheel, and NumPy 1.26 for the Python stub in it.
$(TRITON): $(SERVE) serving/local_triton/environment.py
	$(BIN)/python -m serving.local_triton.environment
	mkdir -p $(@D)  # where PETROV_TRITON_ENVIRONMENT names another folder
	touch $@

$(DEV): $(APP)
	$(BIN)/python -m pip install --group dev -c constraints.txt
	touch $@

# Debian packages for some tests. They are installed if the user is root; without them those tests are skipped.
programs:
	@command -v curl >/dev/null && command -v promtool >/dev/null && command -v chromium >/dev/null || { \
	  test "$$(id -u)" = 0 && apt-get -qq update && \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq --yes install --no-install-recommends curl prometheus chromium; } || true

# Fields of another project, which the tests compare with the physics.
$(CORPUS): $(APP)
	$(BIN)/python -m pip download --quiet --no-deps neuraloperator==0.3.0 -d $(@D)
	touch $@
