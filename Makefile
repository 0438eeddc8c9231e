# Every target with a `##` comment is listed by `make help`.
#
# PYTHON  the interpreter that makes .venv; by default the newest of python3.13, python3.12,
#         python3.11 and python3 that is 3.11 or later
# ARGS    arguments for the program that a target runs: make test ARGS='-k causal'

PYTHON ?=
ARGS   ?=

BIN     := .venv/bin
STAMP   := .venv/.complete
SOURCES  = $(wildcard src tests bench examples tools)

# What `make test-fast` runs: tests that compute, without sockets, processes, Spark and compiled code,
# and without long random runs.
FAST = \
	tests/chaos/test_schedule.py \
	tests/lab/test_lab_seeding.py tests/lab/test_lab_verdicts.py tests/lab/test_lab_verdicts_edges.py \
	tests/lab/test_lab_verdicts_rules.py \
	tests/net/publishing/test_outbox.py tests/net/reading/test_debts.py tests/net/reading/test_ledger.py \
	tests/net/reading/test_subscription.py tests/net/security/test_handshake.py \
	tests/net/security/test_noise.py tests/net/security/test_permissions.py \
	tests/net/security/test_sealing.py tests/net/settings/test_config_bounds.py \
	tests/net/wire/test_parts.py tests/net/wire/test_wire.py tests/net/wire/test_wire_bounds.py \
	tests/ordering/test_ordering_faithful.py tests/ordering/test_ordering_gaps.py \
	tests/ordering/test_ordering_judge.py tests/overlay/test_overlay_basis.py \
	tests/papers/test_holes.py tests/papers/test_topology_papers.py tests/papers/test_vcube_pb.py \
	tests/papers/test_vcube_ps.py \
	tests/protocol/cluster tests/protocol/subscriptions tests/protocol/test_forgetting.py \
	tests/protocol/test_production.py tests/protocol/topic/test_stream_ends.py \
	tests/protocol/topic/test_streams.py tests/protocol/topic/test_topic_core.py \
	tests/rules tests/sim/test_faults.py tests/sim/test_lives.py tests/sim/test_networks.py \
	tests/sim/test_replay.py tests/sim/test_scenarios.py \
	tests/sim/test_script.py tests/sim/test_sim_codec.py tests/topology tests/trace

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-fast lint docs pyright soak siege bench results clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make .venv and install cubecast with its development tools in it
	@echo 'setup: .venv is ready'

# The script writes the stamp last, so an interrupted set-up starts again.
$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	@PYTHON='$(PYTHON)' sh tools/setup.sh

lock: ## write constraints.txt anew: the newest releases that the set-up may install
	@PYTHON='$(PYTHON)' sh tools/lock.sh

demo: $(STAMP) ## eight friends chat, each a real node; see an answer overtake its question, in a few seconds
	@$(BIN)/cubecast demo $(ARGS)

test: lint ## lint, check types and run the tests (ARGS goes to pytest)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m 'not soak' $(ARGS)

test-fast: $(STAMP) ## the edit loop: ruff, and the tests that only compute (ARGS goes to pytest)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m 'not soak' $(FAST) $(ARGS)

lint: $(STAMP) ## ruff on all Python files, mypy --strict on src
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

docs: $(STAMP) ## build the site of docs/ in site/, strictly, and check its links (ARGS=serve shows it)
	@$(BIN)/python tools/docs.py $(ARGS)

pyright: $(STAMP) ## pyright on the examples; fetched with npm, so it needs node and a network
	npx --yes pyright $(ARGS)

soak: $(STAMP) ## 5,000 storms (ARGS goes to tools/soak.py), 20,000 schedules of chaos and a million fuzzed packets, all go on where they stopped, then the long tests
	$(BIN)/python tools/soak.py $(ARGS)
	$(BIN)/cubecast sim chaos --seeds 20000 --counts .chaos.json
	$(BIN)/python tools/fuzz.py --packets 1000000 --state .fuzz.json
	$(BIN)/python -m pytest -n 2 -m soak

siege: $(STAMP) ## an hour of churn with attacks beside it (ARGS goes to bench/bench_siege.py)
	$(BIN)/python bench/bench_siege.py $(ARGS)

bench: $(STAMP) ## run every benchmark but the siege, one after the other (ARGS goes to each)
	@set -e; for file in $(sort $(filter-out bench/bench_siege.py,$(wildcard bench/bench_*.py))); do \
		echo "== $$file"; $(BIN)/python $$file $(ARGS); \
	done

results: $(STAMP) ## run every experiment in full, which takes hours, and renew docs/results (ARGS goes to lab run)
	$(BIN)/cubecast lab run all --out lab-results --until-decided 200 $(ARGS)
	rm -rf docs/results/figures
	$(BIN)/cubecast lab report lab-results --to docs/results --format png --no-page

clean: ## remove caches and build output
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## clean, and remove .venv too
	rm -rf .venv
