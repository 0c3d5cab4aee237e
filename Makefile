# Run `make` for the list of targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The tools of `make check`, pinned. A new version goes into a new folder.
LINT_VERSION := v2.15.0
VULN_VERSION := v1.8.0
NFPM_VERSION := v2.45.2
LINT := .bin/golangci-lint-$(LINT_VERSION)/golangci-lint
VULN := .bin/govulncheck-$(VULN_VERSION)/govulncheck
NFPM := .bin/nfpm-$(NFPM_VERSION)/nfpm

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# What `make test` runs: PKG=./planner/ RUN=TestDue narrows it, LAPSE_PG=15,18 too.
# The longest first, or the last of them runs alone at the end.
PKG ?= ./executor ./cmd/lapse ./audit ./planner ./internal/setup ./replication ./...
RUN ?=
# Test binaries that run at once, each with servers of its own.
TEST_PARALLEL ?= 2
TEST_TIMEOUT ?= 25m
# The servers' data lies in memory where there is room for it. No vet (make check does that), and no symbols for a debugger.
GO_TEST = LAPSE_TMPDIR="$${LAPSE_TMPDIR-$$(scripts/room-in-memory)}" \
	go test -json -count=1 -vet=off -ldflags=-w -p $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) $(if $(RUN),-run '$(RUN)')
SUMMARY = go run ./internal/testsummary

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## the whole job on throw-away servers, explained; without Java a folder keeps the topics; KEEP=1 leaves it running
	@go run ./internal/servers/fetch -demo || echo 'going on with the servers that are here'
	@go run ./cmd/lapse-demo $(if $(KEEP),-keep)

.PHONY: build
build: ## bin/lapse
	@go build -ldflags "-X main.version=$(VERSION) -X main.commit=$(COMMIT)" -o bin/lapse ./cmd/lapse

.PHONY: release
release: $(NFPM) ## dist/: programs, packages for Debian and Red Hat, bills of materials, sums; the same bytes for everybody; VERSION=0.1.0; SIGN=KEY signs the sums
	@NFPM=$(NFPM) SIGN=$(SIGN) scripts/release $(VERSION:v%=%)

.PHONY: test
test: servers-or-less ## the tests, on every PostgreSQL and a Kafka; PKG=./planner/ RUN=TestDue LAPSE_PG=15,18 narrow it
	@long="$$(scripts/marked-tests)" && $(GO_TEST) $(if $(RUN),,-skip "$$long") $(PKG) | $(SUMMARY)

# That a policy keeps its period is tested alone, the others three packages at a time, the longest first.
GO_TEST_LONG = go test -tags long -count=1 -vet=off -ldflags=-w -timeout 30m
HEAVY = ./executor ./audit ./planner ./cmd/lapse ./replication ./internal/setup
LONG = ./cmd/lapse ./bench/deletion ./cmd/lapse-demo ./bench/slot ./audit ./bench/throughput ./internal/page ./bench/pace ./bench/life \
	./audit/report/page ./internal/kafkaserver ./audit/tree ./audit/evidence
.PHONY: test-long
test-long: servers-or-less $(NFPM) ## what make test leaves out: the longest tests, those it has on one PostgreSQL alone on the older, the demonstration and the measuring from end to end
	@long="$$(scripts/marked-tests)" && $(GO_TEST) -run "$$long" $(PKG) | $(SUMMARY)
	@tests="$$(scripts/heavy-tests $(HEAVY))" && LAPSE_PG=14,15,16,17 $(GO_TEST) -run "$$tests" $(HEAVY) | $(SUMMARY)
	@tests="$$(scripts/long-tests ./executor)" && $(GO_TEST_LONG) -run "$$tests" ./executor
	@tests="$$(scripts/long-tests $(LONG))" && $(GO_TEST_LONG) -p 3 -run "$$tests" $(LONG)
	@cd deploy/test && go vet ./... && go test -count=1 -timeout 10m ./manifests

.PHONY: race
race: servers-or-less ## the same with the race detector, on the newest PostgreSQL: slower, needs a C compiler
	@LAPSE_PG=$${LAPSE_PG:-18} CGO_ENABLED=1 $(GO_TEST) -race $(PKG) | $(SUMMARY)

# LAPSE_PG=18 leaves the other version out. The seed is printed; it repeats a run's choices, not its timing.
MINUTES ?= 5
SEED ?=
# Of an auditor; minutes without a broker; and primaries that die, one after the other.
KILLS ?= 100
OUTAGE ?= 10
FAILOVERS ?= 6
.PHONY: torture
torture: torture-audit torture-executor torture-plan ## all of these, one after the other

# SINK=dir has one auditor whose topics are in a folder, instead of brokers.
SINK ?= kafka
.PHONY: torture-audit
torture-audit: servers-or-less ## kill and freeze brokers, auditors and PostgreSQL for MINUTES=5, KILLS=100 of an auditor, OUTAGE=10 minutes of the brokers, FAILOVERS=6; SINK=dir: without brokers; SEED=N repeats a run's choices
ifeq ($(SINK),dir)
	@LAPSE_TORTURE=$(MINUTES) LAPSE_TEST_SEED=$(SEED) go test -tags torture -count=1 -v -timeout $$(($(MINUTES) + 20))m \
		-run TestNothingIsMissingOrTwiceInAFolderUnderTorture ./audit/
else
	@LAPSE_TORTURE=$(MINUTES) LAPSE_TEST_SEED=$(SEED) go test -tags torture -count=1 -v -timeout $$(($(MINUTES) + 20))m \
		-run TestNothingIsMissingOrTwiceUnderTorture ./audit/
	@LAPSE_TEST_FAILOVERS=$(FAILOVERS) LAPSE_TEST_SEED=$(SEED) go test -tags torture -count=1 -v -timeout $$(($(FAILOVERS) + 10))m \
		-run TestAnAuditorGoesOnAtThePromotedStandby ./audit/
	@LAPSE_TEST_KILLS=$(KILLS) LAPSE_TEST_OUTAGE=$(OUTAGE) LAPSE_TEST_SEED=$(SEED) go test -tags torture -count=1 -v \
		-timeout $$(($(KILLS) / 10 + $(OUTAGE) + 20))m -run 'TestAHundredKills|TestTenMinutes' ./audit/
endif

# Four tests, each for MINUTES: random worlds with concurrent writers, policies in which everything meets, cut connections, and kills of any of four executors.
.PHONY: torture-executor
torture-executor: servers-or-less ## the executor's: random tables with writers beside it, every message cut, kill -9, each for MINUTES=5
	@LAPSE_TORTURE=$(MINUTES) LAPSE_TEST_SEED=$(SEED) go test -tags torture -count=1 -v -timeout $$((4 * $(MINUTES) + 30))m \
		-run '^TestTorture' ./executor/ | grep -v '^ *[a-z_]*_test.go:[0-9]*: time='

.PHONY: torture-plan
torture-plan: servers-or-less ## plan -f against apply in drawn schemas, for MINUTES=5; SEED=N repeats a run's choices
	@LAPSE_TORTURE=$(MINUTES) LAPSE_TEST_SEED=$(SEED) go test -tags torture -count=1 -v -timeout $$(($(MINUTES) + 20))m \
		-run TestTorturePlanSaysWhatApplyRefuses ./cmd/lapse/

# Give the machine nothing else to do meanwhile; bench/README.md says what is measured, and how.
.PHONY: bench
bench: bench-deletion bench-pace bench-life bench-slot bench-throughput ## all that is measured side by side, about an hour and a half; ratios first, figures in bench/out/

.PHONY: bench-deletion
bench-deletion: build servers-or-less ## deletion beside one giant DELETE and a loop of ctid batches, on fifteen tables; BENCH=-quick: two minutes
	@go run ./bench/deletion -lapse bin/lapse $(BENCH)

# BENCH="-disks slow -rate 500" narrows it; go run ./bench/pace -help says more.
.PHONY: bench-pace
bench-pace: build servers-or-less ## what an application feels of deletion at gentle and at unlimited pace, on its own table and beside it
	@go run ./bench/pace -lapse bin/lapse $(BENCH)

# BENCH="-time 1m -policies 100" changes the life; go run ./bench/life -help says more.
.PHONY: bench-life
bench-life: build servers-or-less ## what Lapse takes from a server that it shares with an application all day, and how its own tables grow
	@go run ./bench/life -lapse bin/lapse $(BENCH)

# BENCH="-rounds 3 -transports unix -debezium=false" narrows it; go run ./bench/slot -help says more.
.PHONY: bench-slot
bench-slot: build servers-or-less debezium-or-less ## from the slot into Kafka beside pg_recvlogical and Debezium, how late events are, memory while many rows pass
	@go run ./bench/slot -lapse bin/lapse $(BENCH)

# The binary to compare with is built beforehand, of any commit:
#   git worktree add /tmp/before COMMIT && (cd /tmp/before && go build -o /tmp/lapse-before ./cmd/lapse)
#   make bench-throughput BEFORE=/tmp/lapse-before
# BENCH="-pg 17 -rounds 3 -scenarios plain,audit" narrows it; go run ./bench/throughput -help says more.
BEFORE ?=
BENCH ?=
.PHONY: bench-throughput
bench-throughput: build servers-or-less ## batches a second in several databases, and deletes that the audit publishes a second; BEFORE=PATH compares with that lapse binary
	@go run ./bench/throughput $(if $(BEFORE),-before '$(BEFORE)') -after bin/lapse -o bench/out/throughput.json $(BENCH)

.PHONY: servers
servers: ## fetch the PostgreSQL 14-18 and Kafka that tests run on into .servers/; LAPSE_PG=15,18 narrows it
	@go run ./internal/servers/fetch

# Tests say themselves which server is missing: as a skip, and as a failure with CI=true.
.PHONY: servers-or-less
servers-or-less:
	@go run ./internal/servers/fetch || echo 'going on with the servers that are here'

.PHONY: debezium
debezium: ## fetch the Debezium and Kafka Connect that make bench-slot has beside lapse: 43 MB
	@go run ./internal/servers/fetch -debezium

.PHONY: debezium-or-less
debezium-or-less:
	@go run ./internal/servers/fetch -debezium || echo 'going on without Debezium'

.PHONY: check
check: ## format, vet, lint, import table, sizes, words, modules, known vulnerabilities
	@$(MAKE) --no-print-directory -k check-format check-words check-lint check-modules check-vulnerabilities

.PHONY: check-format
check-format: $(LINT)
	@$(LINT) fmt --diff

.PHONY: check-words
check-words: # what scripts/hard-words lists, in code, comments, SQL, documents and messages
	@if git grep -inP "$$(grep -v '^#' scripts/hard-words | paste -sd '|')" -- . ':!scripts/hard-words' ':!LICENSE'; then \
		echo 'scripts/hard-words says what to write instead' >&2; exit 1; else [[ $$? == 1 ]]; fi

.PHONY: check-lint
check-lint: $(LINT)
	@go vet -tags torture,long ./...
	@$(LINT) run ./...

.PHONY: check-modules
check-modules:
	@go mod verify
	@go mod tidy -diff

.PHONY: check-vulnerabilities
check-vulnerabilities:
	@GOVULNCHECK=$(VULN) GOVULNCHECK_VERSION=$(VULN_VERSION) scripts/check-vulnerabilities

.PHONY: format
format: $(LINT) ## write the format that make check asks for
	@$(LINT) fmt

.PHONY: golden
golden: servers-or-less ## write the golden files again; look at the difference before you commit it
	@go test -count=1 $$(grep -rlE 'flag\.Bool\("update"' --include='*_test.go' . | xargs -n1 dirname | sort -u) -update

$(LINT):
	GOBIN=$(abspath $(dir $@)) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

$(NFPM):
	GOBIN=$(abspath $(dir $@)) go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
