# What can be done here: `make` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled modules are kept, which halves the start of every program, and never lie in the tree.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/pycache
# A new machine has no package lists, and an old one stale ones: they are updated where an
# installation fails. $(call install,PACKAGES)
INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends
install = { $(INSTALL) $(1) 2>/dev/null || { apt-get update && $(INSTALL) $(1); }; }
# A virtual environment from a lock with hashes. $(call environment,DIRECTORY,LOCK)
# uv takes a tenth of pip's time. Where it cannot, as with an index of pip's configuration, pip does.
# The lock is complete, so that nothing is resolved; what is imported is compiled then: the packages
# have ten times as many modules.
PIP_INSTALL := bin/pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes
define environment
@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo 'installing python3-venv'; \
  $(call install,python3-venv); } || { echo 'python3-venv is missing: install it as root' >&2; exit 1; }
$(PYTHON) -m venv $(1)
@{ $(1)/$(PIP_INSTALL) -r requirements/installer.lock && $(1)/bin/uv pip install --quiet \
  --python $(1)/bin/python --no-deps --require-hashes -r $(2); } || $(1)/$(PIP_INSTALL) -r $(2)
endef
# The parts of `make test` beside lint, beside each other: docs/decisions/147-seven-runs.md.
RUNS := shared planes clusters engines below servers others
PYTHON_SOURCES := src tests bench tools hatch_build.py
# What the image is made of, directories too, since one changes when a file is removed. What is in
# `generated` is made of the rest.
IMAGE_INPUTS := $(wildcard requirements/run.lock pyproject.toml hatch_build.py) \
  $(shell find src tools/image '(' -name __pycache__ -o -name generated ')' -prune -o -print 2>/dev/null)

.PHONY: help demo venv format lint unit unit-1 unit-2 unit-3 lowest coverage docs test test-lint retest-lint \
  $(RUNS:%=test-%) $(RUNS:%=retest-%) packages image guest peers soak chart mutants bench lock clean

help: ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

demo: venv ## the whole path on this machine, in a minute: needs root, installs what is missing
	$(BIN)/moor demo --install --examples examples

venv: $(VENV)/.built ## create the virtual environment from the hashed lock and build Moorage into it

$(VENV)/.installed: requirements/dev.lock
	$(call environment,$(VENV),$<)
	touch $@

$(VENV)/.built: $(VENV)/.installed pyproject.toml hatch_build.py $(shell find src -name '*.txt' -o -name '*.proto' -o -name build.py) $(shell find src/moorage/apiserver/registry -name '*.py')
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@

format: venv ## format the code and fix what the linter can fix
	$(BIN)/ruff format $(PYTHON_SOURCES)
	$(BIN)/ruff check --fix $(PYTHON_SOURCES)

lint: venv ## format check, lint, wording, types, import direction
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/python -m tools.wording
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Rules, and loops against fakes: no cluster, no engine, no root. Three processes of about the same
# length, since some tests wait; workers of one would each collect everything.
UNIT := $(BIN)/pytest -m 'not runtime and not root and not slow' --hypothesis-profile quick -p no:cacheprovider
UNIT_1 := tests/api tests/apiserver/admission tests/apiserver/registry tests/apiserver/quota \
	  tests/migrate/rules tests/wire/streaming tests/containerd_configuration
UNIT_2 := tests/wire/client tests/controllers tests/scheduler tests/apiserver/storage
UNIT_3 := tests/wire/cri tests/engine tests/node tests/runtimeclass \
	  --ignore tests/engine/handlers/adapters --ignore tests/engine/images --ignore tests/engine/whole

unit: venv ## the tests of rules and loops, in less than a minute: needs neither root nor packages
	@$(MAKE) --no-print-directory --keep-going --jobs=3 --output-sync=target unit-1 unit-2 unit-3

unit-1 unit-2 unit-3: unit-%:
	@$(UNIT) $(UNIT_$*)

lowest: ## the tests of `make unit` with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/pip install --quiet --disable-pip-version-check uv
	$(VENV)-lowest/bin/uv pip compile --quiet --no-header --resolution lowest-direct \
	  --python $(VENV)-lowest/bin/python --output-file $(VENV)-lowest/versions.txt pyproject.toml
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python \
	  --constraints $(VENV)-lowest/versions.txt --requirements requirements/dev.in
	touch $(VENV)-lowest/.installed
	$(MAKE) unit VENV=$(VENV)-lowest

coverage: venv ## the tests of `make unit`, and which share of each package they reach
	@$(UNIT) --numprocesses 3 --dist loadfile $(UNIT_1) $(UNIT_2) $(UNIT_3) --cov=moorage --cov-report=
	@$(BIN)/python -m tools.coverage_table

docs: $(VENV)-docs/.installed ## build the documentation site into site/, which can be read offline
	NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --strict --quiet
	@echo 'open site/index.html; for the search: python3 -m http.server --directory site'

$(VENV)-docs/.installed: requirements/docs.lock
	$(call environment,$(VENV)-docs,$<)
	touch $@

# Clusters and engines mostly wait, and the type checker has one thread, so that two cores are enough
# for eight jobs beside each other. A test that failed beside the others gets one more chance, alone:
# docs/decisions/147.
test: packages ## lint and every test; the tests that needed a second chance are listed at the end
	@rm -f $(RUNS:%=$(VENV)/%.again)
	@status=0; \
	$(MAKE) --no-print-directory --keep-going --jobs=8 --output-sync=target test-lint $(RUNS:%=test-%) \
	  || $(MAKE) --no-print-directory --keep-going retest-lint $(RUNS:%=retest-%) || status=$$?; \
	$(BIN)/python -m tools.second_chances $(RUNS:%=$(VENV)/%.again); exit $$status

# Of tests/runs.py: a run imports no other modules.
test-shared retest-shared: MARK := shared and not plane
test-planes retest-planes: MARK := plane
test-clusters retest-clusters: MARK := whole and not shared
test-engines retest-engines: MARK := cluster and not whole and not below
test-below retest-below: MARK := below and not whole
test-servers retest-servers: MARK := server and not cluster
test-others retest-others: MARK := not cluster and not below and not server
ONE_RUN = $(BIN)/pytest -m '$(MARK)' -o cache_dir=$(VENV)/$*.cache

# Lint finds the same each time, so that it does not run again.
test-lint:
	@rm -f $(VENV)/lint.failed
	@$(MAKE) --no-print-directory lint || { touch $(VENV)/lint.failed; exit 1; }

retest-lint:
	@[ ! -e $(VENV)/lint.failed ] || { echo 'lint failed' >&2; exit 1; }

$(RUNS:%=test-%): test-%:
	@rm -f $(VENV)/$*.failed
	$(ONE_RUN) || { touch $(VENV)/$*.failed; \
	  cp $(VENV)/$*.cache/v/cache/lastfailed $(VENV)/$*.again || true; exit 1; }

$(RUNS:%=retest-%): retest-%:
	@[ ! -e $(VENV)/$*.failed ] || { echo 'tests that failed run again, alone:'; \
	  $(ONE_RUN) --verbose --last-failed --last-failed-no-failures none --maxfail 3; }

packages: venv ## the system packages that pods and tests need; only as root, only on Debian and its like
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  $(BIN)/moor doctor --install || echo 'tests with pods are skipped'; \
	  missing=$$(for each in $$(cat tests/packages.txt); do \
	    command -v "$$each" >/dev/null || echo "$$each"; done); \
	  if [ -n "$$missing" ]; then $(call install,$$missing) \
	    || echo "tests that need $$missing are skipped"; fi; \
	else echo 'not root on Debian: tests with pods are skipped'; fi

image: venv ## the image of all parts in build/image, without a container daemon; ARCH=arm64 for another
	$(BIN)/python -m tools.image $(if $(ARCH),--arch $(ARCH)) --output build/image
	$(if $(ARCH),,touch build/image/.current)

# Only built when what it is made of has changed. An old image proves nothing of this tree.
test-clusters: build/image/.current

build/image/.current: $(IMAGE_INPUTS) | $(VENV)/.built
	@$(BIN)/python -m tools.image --output build/image && touch $@ || { \
	  rm -f build/image/*-$$(dpkg --print-architecture).tar; \
	  echo 'the image is not built: tests that run it are skipped'; }

guest: venv ## a virtual machine with systemd and cgroups of version 2 in build/guest, for MOORAGE_GUEST; needs root
	@for tool in qemu-system-x86_64 linux.uml mmdebstrap mke2fs ssh-keygen; do command -v $$tool >/dev/null || missing=1; done; \
	  [ -z "$$missing" ] || $(call install,qemu-system-x86 user-mode-linux mmdebstrap e2fsprogs openssh-client)
	$(BIN)/python -m tests.guest prepare

peers: venv ## build programs of others for the tests that compare with them: needs Go, Rust and npm, and minutes
	$(BIN)/python -m tests.peers

soak: venv ## the tests that break things on purpose, for longer, and random ones with new seeds
	MOORAGE_FUZZ=1 $(BIN)/pytest --ignore tests/cluster/whole
	MOORAGE_FUZZ_S=$(or $(FUZZ_S),600) $(BIN)/pytest -s tests/apiserver/test_fuzz.py tests/apiserver/test_served_openapi.py
	MOORAGE_ENGINE_PODS=1000 $(BIN)/pytest tests/engine/whole --timeout=3600
	MOORAGE_HISTORY_MINUTES=10 $(BIN)/pytest tests/apiserver/history --timeout=3600
	MOORAGE_SHORT_PODS=500 $(BIN)/pytest tests/cluster/whole/test_full_node.py --timeout=3600
	MOORAGE_KILL_ROUNDS=100 $(BIN)/pytest tests/cluster/whole/test_kill.py --timeout=3600
	MOORAGE_ENGINES=all $(BIN)/pytest tests/cluster/whole/test_other_engines.py
	MOORAGE_MINIMAL_ROOT=1 $(BIN)/pytest tests/cluster/whole/test_minimal_root.py

chart: venv ## make the Helm chart in chart/ of the objects that `moor attach` installs
	rm -rf chart/moorage
	$(BIN)/moor attach --chart chart/moorage

mutants: venv ## put random faults into a copy of the code, and print those that no test notices
	$(BIN)/python -m tests.mutants $(MUTANTS)

bench: venv ## print every figure of docs/figures.md
	$(BIN)/python -m bench.storage
	$(BIN)/python -m bench.api
	$(BIN)/python -m bench.network
	$(BIN)/python -m bench.hotpaths
	$(BIN)/python -m bench.scheduler
	$(BIN)/python -m bench.engine
	$(BIN)/python -m bench.cluster
	$(BIN)/python -m bench.podstart

# Extras stay in the lock: without them pip looks for the newest version of what an extra names, and
# refuses it, since only the pinned one has a hash.
PIN := $(VENV)-lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --no-emit-index-url \
  --no-emit-find-links --no-emit-trusted-host --no-header --no-annotate --no-strip-extras
GROUP = $(PYTHON) -c 'import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["$(1)"], sep="\n")'

lock: ## pin requirements/*.in and the group docs again, with hashes and without registry addresses
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet pip-tools
	for name in dev installer run; do \
	  $(PIN) --output-file requirements/$$name.lock requirements/$$name.in; done
	$(call GROUP,docs) | $(PIN) --output-file requirements/docs.lock -

clean: ## remove what make made
	rm -rf $(VENV) $(VENV)-docs $(VENV)-lock $(VENV)-lowest site .coverage $(shell find . -name generated -type d)
