# Everything that a fresh machine with Python 3.11 and Java 17 needs: `make run`, `make test`, `make check`.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || echo python3)
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
# The configurations of sharegroup/spark/ivy.xml to retrieve; without Kafka: make setup JAR_SETS=spark
JAR_SETS ?= spark kafka
# More arguments for the command that a target runs, for example: make test ARGS="-k fence"
ARGS ?=
# The row that `make bench` measures; all that take minutes by default
ROW ?=
# The platform that `make test-platforms` runs; all by default
PLATFORM ?=
# The first seed of the simulator, and the one after the last
SEEDS ?= 0:1000

UV_VERSION := 0.13.8
AZURITE_VERSION := 3.37.0
# Tests that mostly compute.
FAST := --numprocesses 3 --dist worksteal -m "not spark and not kafka and not slow and not long"
# Tests that wait for JVMs, processes and locks half of their time, in the order of tests/conftest.py and the groups of tests/support/groups.py.
IN_GROUPS := --numprocesses 3 --dist loadscope --no-loadscope-reorder
SLOW := $(IN_GROUPS) -m "(spark or kafka or slow) and not long"
REST := $(IN_GROUPS) -m "long and not pip"
# Tests write many small files, and sync each of them: in memory, where there is room, that takes no time.
IN_MEMORY = $(shell df -Pk /dev/shm 2>&1 | awk 'NR == 2 && $$4 > 4000000 { print "TMPDIR=/dev/shm" }')
BIN := .venv/bin
# Tests start many processes; compiled modules are kept between them, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE
SPARK_HOME = $$(echo $(CURDIR)/.venv/lib/python*/site-packages/pyspark)
INSTALLED = .venv/.requirements-installed .venv/.package-installed .venv/.spark-configured \
	$(JAR_SETS:%=build/jars/%/.retrieved) build/.classes-archived \
	$(patsubst %,build/jars/%/.classes-archived,$(filter broker-%,$(JAR_SETS)))

preflight = $(call stop_on,$(shell .ci/preflight.sh "$(PYTHON)" "$(JAVA)" 2>&1))
stop_on = $(if $(1),$(error $(1)))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Build .venv from the lock and retrieve the jars, where not done yet
	$(preflight)
	@"$(PYTHON)" .ci/with_lock.py build/setup.lock $(MAKE) --no-print-directory --quiet $(INSTALLED)

.PHONY: run
run: setup ## Run the example job
	$(BIN)/python jobs/flights.py $(ARGS)

.PHONY: test
test: JAR_SETS += broker-4.3.1
test: setup ## Run the tests, in 9 minutes (some of them: ARGS="-k fence")
ifeq ($(strip $(ARGS)),)
	$(IN_MEMORY) $(BIN)/pytest $(FAST)
	$(IN_MEMORY) $(BIN)/pytest $(SLOW)
else
	$(IN_MEMORY) $(BIN)/pytest -m "not long" $(ARGS)
endif

.PHONY: test-rest
test-rest: JAR_SETS += broker-4.3.1 broker-3.9.2 s3proxy s3a
test-rest: setup $(if $(shell command -v npm),build/azurite/.installed) ## Run the tests marked long: clusters, stores, many crashes
	$(IN_MEMORY) $(BIN)/pytest $(REST) --durations 20 $(ARGS)

.PHONY: test-all
test-all: ## Run all tests, in 40 minutes
	@$(MAKE) --no-print-directory test ARGS=
	@$(MAKE) --no-print-directory test-rest ARGS=

.PHONY: test-platforms
test-platforms: setup ## Run the core tests on other versions of Spark, Python and Java (one: PLATFORM=spark-4.0)
	$(IN_MEMORY) $(BIN)/python -m tests.platforms $(PLATFORM) $(ARGS)

.PHONY: test-fast
test-fast: setup ## Run the tests that only compute, in half a minute
	$(IN_MEMORY) $(BIN)/pytest $(FAST) $(ARGS)

.PHONY: soak
soak: JAR_SETS += broker-4.3.1
soak: setup ## Run the crash tests with 200 kills in one run, and outages of a minute, of sinks of 20 minutes
	$(BIN)/pytest tests/crash --crashes=200 --outage=60 --sink-outage=1200 -o faulthandler_timeout=0 $(ARGS)

.PHONY: simulate
simulate: setup ## Run simulated schedules (which: SEEDS=0:1000)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

.PHONY: bench
bench: JAR_SETS += broker-4.3.1
bench: setup ## Measure for up to an hour and write docs/benchmarks.md (one row: ROW=T4)
	$(BIN)/python -m benchmarks $(ROW:%=--row %) $(ARGS)

.PHONY: bench-long
bench-long: JAR_SETS += broker-4.3.1
bench-long: setup ## Measure the rows that take hours; goes on after the last finished row
	$(BIN)/python -m benchmarks --long $(ARGS)

.PHONY: check
check: setup ## Lint, check the format, the types, the layers and the words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.words

.PHONY: format
format: setup ## Rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: schemas
schemas: setup ## Write the JSON Schemas of messages and rows from the models
	$(BIN)/python -m tools.schemas schemas

.PHONY: docs
docs: setup ## Write the generated documents from the code
	$(BIN)/python -m tools.configuration_reference docs/configuration.md
	$(BIN)/python -m tools.metrics_reference docs/metrics.md
	$(BIN)/python -m tools.state_diagram docs/state_machine.md

.PHONY: lock
lock: ## Write the lock from pyproject.toml (newest releases: ARGS=--upgrade)
	$(preflight)
	"$(PYTHON)" -m venv --clear build/lock
	build/lock/bin/pip install --quiet uv==$(UV_VERSION)
	$(UV_COMPILE) pyproject.toml --all-extras --group dev --group examples --group benchmarks --output-file requirements.txt
	$(UV_COMPILE) --group pyproject.toml:build --constraints requirements.txt --output-file requirements-build.txt
	$(UV_PLATFORM) --python-version 3.12 --extra spark --constraints $(PLATFORMS)/spark-4.0.in --output-file $(PLATFORMS)/spark-4.0.txt
	$(UV_PLATFORM) --python-version 3.13 --extra spark --constraints $(PLATFORMS)/spark-4.1.in --output-file $(PLATFORMS)/spark-4.1.txt
	$(UV_PLATFORM) --python-version 3.11 $(PLATFORMS)/connect.in --output-file $(PLATFORMS)/connect.txt
	$(UV_PLATFORM) --python-version 3.11 --extra stores --resolution lowest-direct --upgrade --output-file $(PLATFORMS)/lowest.txt

.PHONY: clean
clean: ## Remove all that make and the tools have made
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis sharegroup.egg-info

# The environments of tests/platforms.
PLATFORMS := tests/platforms/requirements
UV_PLATFORM = build/lock/bin/uv pip compile --quiet --generate-hashes --no-annotate --custom-compile-command "make lock" \
	pyproject.toml --extra pictures --group tests $(ARGS)

# A stamp is touched last, so a build that was cut short starts again from nothing.
UV_COMPILE = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" $(ARGS)

.venv/.requirements-installed: requirements-build.txt requirements.txt
	@echo "Installing the locked Python packages into .venv (some minutes the first time)"
	"$(PYTHON)" -m venv --clear .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements-build.txt
	$(BIN)/pip install --quiet --require-hashes --no-build-isolation -r requirements.txt
	touch $@

.venv/.package-installed: pyproject.toml .venv/.requirements-installed
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# Spark reads the folder `conf` beside its own `bin`; it is made here, since it names the jars' path on this machine.
.venv/.spark-configured: conf/spark/spark-defaults.conf sharegroup/spark/log4j2.properties .ci/compile_pyspark.py \
		.venv/.requirements-installed
	mkdir -p "$(SPARK_HOME)/conf"
	sed "s|@ROOT@|$(CURDIR)|g; s|@SPARK_HOME@|$(SPARK_HOME)|g" conf/spark/spark-defaults.conf > \
		"$(SPARK_HOME)/conf/spark-defaults.conf"
	cp sharegroup/spark/log4j2.properties "$(SPARK_HOME)/conf/"
	$(BIN)/python .ci/compile_pyspark.py "$(SPARK_HOME)"
	touch $@

# PySpark brings Apache Ivy, whose default resolver is Maven Central.
build/jars/%/.retrieved: sharegroup/spark/ivy.xml | .venv/.requirements-installed
	@echo "Retrieving the jars of set '$*' into $(@D)"
	rm -rf $(@D)
	"$(JAVA)" -jar .venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar -cache build/ivy -ivy sharegroup/spark/ivy.xml \
		-confs $* -retrieve "$(@D)/[artifact]-[revision].[ext]" > build/ivy-$*.log 2>&1 || { cat build/ivy-$*.log; exit 1; }
	touch $@

# The tests that need it say so where it is missing.
build/azurite/.installed:
	@echo "Installing Azurite for tests into $(@D)"
	@mkdir -p $(@D)
	@if npm install --silent --no-audit --no-fund --prefix $(@D) azurite@$(AZURITE_VERSION); then touch $@; else \
		echo "Azurite could not be installed: its tests are skipped"; fi

# It fits these jars and this Java; another one ignores it.
build/.classes-archived: .ci/archive_classes.sh .venv/.spark-configured .venv/.package-installed \
		$(patsubst %,build/jars/%/.retrieved,$(filter spark kafka,$(JAR_SETS)))
	@echo "Archiving Spark's classes, for a faster start (a minute)"
	.ci/archive_classes.sh build/spark.jsa "$(SPARK_HOME)"
	touch $@

# An archive of a broker's classes, for tests; also one that could not be made is not tried again.
build/jars/broker-%/.classes-archived: build/jars/broker-%/.retrieved | .venv/.package-installed
	@echo "Archiving the classes of Kafka $*, for a faster start"
	$(BIN)/python -m tests.support.broker_archive $*
	touch $@
