# Verbena. `make` prints this help; there is nothing to configure, and only Go to install.

GO ?= go
# The linter and its version; fetched through the Go module proxy and built on
# first use, which takes some minutes.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

FILE ?=
DEV ?=
SUITES ?=
FUZZTIME ?= 10m
STRESSOPS ?= 10000000
STRESSTIME ?= 1m
SIMOPS ?= 10000000
EVENTS ?= 10000000
CHAOSROUNDS ?= 10000
BENCH ?= .
MUTANTS ?=

.DEFAULT_GOAL := help
.PHONY: help demo demo-two test test-rxe test-device stress stress-rxe fuzz mutants bench lint vet cover fmt clean

help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## move a file between two runtimes (FILE=path; by default one that is there)
	$(GO) run ./examples/demo $(if $(FILE),"$(FILE)")

demo-two: ## the same between two processes, a server and a client
	@set -e; tmp=$$(mktemp -d); server=; trap 'kill $$server 2>/dev/null || :; rm -rf "$$tmp"' EXIT; trap 'exit 1' HUP INT TERM; \
	$(GO) build -o "$$tmp/demo" ./examples/demo; mkfifo "$$tmp/said"; \
	at=127.0.0.1:0; [ -z "$$VERBENA_DEVICE" ] || at=:0; \
	"$$tmp/demo" serve "$$at" >"$$tmp/said" & server=$$!; \
	exec 3<"$$tmp/said"; read -r line <&3; cat <&3 & \
	addr=$${line##* }; echo "demo serve: $$line"; echo "demo dial $$addr"; \
	"$$tmp/demo" dial "$$addr" $(if $(FILE),"$(FILE)"); \
	kill -INT $$server; wait $$server; server=

test: ## everything that must pass, with a summary (without make: sh scripts/test.sh)
	@sh scripts/test.sh

test-rxe: ## what of it runs on the kernel's Soft-RoCE, in a virtual machine
	@sh scripts/rxe.sh

test-device: ## the same on real hardware, with a report to send in (DEV=mlx5_0, SUITES="conformance runtime" or none; DEV=rxe0: in the virtual machine)
	@$(if $(SUITES),SUITES="$(SUITES)") sh scripts/device.sh "$(DEV)"

stress: ## stress under the race detector (STRESSOPS=, STRESSTIME=1m, SIMOPS=, EVENTS=10000000, CHAOSROUNDS=10000), living connections fuzzed for FUZZTIME=10m, the large models, the tests on arm64
	VERBENA_STRESS_OPS=$(STRESSOPS) VERBENA_STRESS_TIME=$(STRESSTIME) $(GO) test -race -count=1 -timeout 4h -run Stress -v ./...
	$(GO) test -race -count=1 ./benchmarks/... ./examples/... ./internal/rxevm/... ./scripts/... ./verbs/ibv
	VERBENA_EVENTS=$(EVENTS) $(GO) test -count=1 -timeout 4h -run NoWakeUpIsLost -v ./reactor
	VERBENA_LOSSY_MIB=10240 $(GO) test -count=1 -timeout 1h -run StressLossySocket -v ./verbs/soft
	for f in FuzzChangedPackets FuzzUnluckyNetwork; do $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x ./verbs/soft || exit 1; done
	VERBENA_SIM_OPS=$(SIMOPS) $(GO) test -count=1 -timeout 1h -run '^TestSimulation$$' -v ./runtime
	VERBENA_CHAOS_ROUNDS=$(CHAOSROUNDS) $(GO) test -count=1 -timeout 4h -run ChaosAtTheEnd -v ./runtime
	VERBENA_CHAOS_ROUNDS=$(CHAOSROUNDS) $(GO) test -race -count=1 -timeout 4h -run ChaosAtTheEnd -v ./runtime
	VERBENA_PLOG_STEPS=6 VERBENA_PLOG_KILLS=200 $(GO) test -count=1 -timeout 1h -run 'LossOfPower|LossesOfPower|KilledServer' -v ./runtime/plog -rapid.checks=100000
	VERBENA_PAIR_ROUNDS=10000 $(GO) test -count=1 -timeout 4h -run BesideEachOther -v ./rdmacm
	VERBENA_NTH=all $(GO) test -count=1 -timeout 1h -run NthCall -v ./runtime
	VERBENA_MODEL=all $(GO) test -count=1 -timeout 4h -tags verbena_model -run '^TestModel' -v ./futures ./reactor/... ./runtime/actor ./runtime/internal/exec ./internal/ring ./internal/model/...
	sh scripts/arm64.sh

stress-rxe: ## all of test-rxe, 20 kills of a machine with a log, and completion events on Soft-RoCE until EVENTS=10000000 have come (hours)
	QUICK= VERBENA_PERFTEST_MIB=8 sh scripts/rxe.sh
	VERBENA_PLOG_KILLS=20 $(GO) test -count=1 -timeout 2h -tags verbena_rxevm -run KilledMachine -v ./runtime/plog
	VERBENA_EVENTS=$(EVENTS) VERBENA_STORM_TIME=8h $(GO) test -count=1 -timeout 25h -run NoWakeUpIsLost -v \
		-exec '$(GO) run github.com/verbena-rdma/verbena/internal/rxevm/cmd/rxevm exec' ./reactor

fuzz: ## every fuzz target for FUZZTIME=10m, one for each processor at once
	@sh scripts/fuzz.sh "$(FUZZTIME)"

mutants: ## what the tests do not notice: 100 changes each of runtime, reactor and actor (MUTANTS='-n 5 ./reactor'; hours)
	$(GO) run ./scripts/mutants $(MUTANTS)

bench: ## the Go benchmarks, BENCH=pattern, into bench.txt
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./... | tee bench.txt

lint: ## golangci-lint, pinned
	$(GO) run $(GOLANGCI) run

vet: ## go vet: here, portable, and for every other system
	$(GO) vet ./...
	$(GO) vet -tags verbena_rxevm ./internal/rxevm/...
	$(GO) vet -tags portable ./...
	$(GO) vet -tags verbena_model ./futures ./reactor/... ./runtime/actor ./runtime/internal/exec ./internal/ring ./internal/model/...
	sh scripts/cross.sh build

cover: ## test coverage over all packages, into cover.html
	$(GO) test -count=1 -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1
	$(GO) tool cover -html=cover.out -o cover.html

fmt: ## format every Go file
	gofmt -w $$(git ls-files '*.go')

clean: ## remove what the targets above left
	rm -f bench.txt cover.out cover.html
	find . -name '*.test' -o -name '*.prof' | grep -v '^./.git/' | xargs -r rm -f
