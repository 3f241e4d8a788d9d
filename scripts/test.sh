#!/bin/sh
# The whole test run of Verbena: `make test`, or `sh scripts/test.sh` where there
# is no make. It needs Go, and nothing else; the network only for what the Go
# module proxy has not given yet, and for Debian's packages where there is QEMU
# to run Soft-RoCE in (scripts/rxe.sh). Every step is run even if one before it
# failed.
# The last line is "N passed, N failed, N skipped"; the exit code is 0 if nothing
# failed.
#
#   FUZZTIME=3s            time for each fuzz target
#   TESTTIMEOUT=5m         time for each package in each step
#   VERBENA_SUMMARY=file   the last line is written there too
set -eu
cd "$(dirname "$0")/.."

: "${FUZZTIME:=3s}"
: "${TESTTIMEOUT:=5m}"
# No stamp of the version in what is built here: git may be missing, or mistrust
# the owner of the folder.
GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
export GOFLAGS

command -v go >/dev/null 2>&1 || { echo "go is not installed, or not in PATH" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
go build -o "$tmp/testsum" ./scripts/testsum
sum() { "$tmp/testsum" -o "$tmp/steps" "$@"; }
# -count=1: random and racing tests are worth running again. -vet=off: vet is a
# step of its own.
# The packages that have models.
modelled="./futures ./reactor/... ./runtime/actor ./runtime/internal/exec ./internal/ring ./internal/model/..."
tests() { name=$1; shift; sum tests "$name" -- go test -json -count=1 -vet=off -timeout "$TESTTIMEOUT" "$@"; }

sum check "build" -- go build ./...
sum check "build without cgo" -- env CGO_ENABLED=0 go build ./...
sum check "vet" -- go vet ./...
sum check "vet, tests that boot machines" -- go vet -tags verbena_rxevm ./internal/rxevm/...
sum check "vet, models" -- go vet -tags verbena_model $modelled
sum check "vet, portable" -- go vet -tags portable ./...
sum check "types, other systems" -- sh scripts/cross.sh

# The linter is had by asking it for its version, within a time; go run builds it
# once, into the build cache.
linter=$(sed -n 's/^GOLANGCI := //p' Makefile)
if why=$($(command -v timeout >/dev/null && echo timeout 5m) go run "$linter" version 2>&1); then
	sum check "lint" -- go run "$linter" run
else
	sum notrun "lint" "golangci-lint cannot be had: $(printf '%s\n' "$why" | tail -n 1)"
fi

tests "tests" ./...

# The race detector needs a C compiler, and a machine that its binaries run on.
# Asked by doing it.
mkdir "$tmp/probe"
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("ok") }\n' >"$tmp/probe/main.go"
if why=$(CGO_ENABLED=1 go build -race -o "$tmp/probe/probe" "$tmp/probe/main.go" 2>&1) &&
	why=$("$tmp/probe/probe" 2>&1); then
	CGO_ENABLED=1 tests "tests, race detector" -race ./...
else
	sum notrun "tests, race detector" "no race build here: $(printf '%s\n' "$why" | grep -v '^#' | head -n 1)"
fi

tests "tests, portable" -tags portable ./futures/... ./reactor/... ./verbs/... ./runtime/... ./internal/...
# Every interleaving of small worlds, on the real code. No other tests: whoever comes to a hook
# while a world is explored is taken for one of its goroutines, and tests leave timers behind.
tests "models" -tags verbena_model -run '^TestModel' $modelled
sum fuzz "fuzz, $FUZZTIME each" "$FUZZTIME" ./...
TESTSUM=$tmp/testsum STEPS=$tmp/steps sh scripts/rxe.sh || sum check "scripts/rxe.sh, exit code $?" -- false

code=0
sum table >"$tmp/table" || code=$?
cat "$tmp/table"
[ -z "${VERBENA_SUMMARY:-}" ] || tail -n 1 "$tmp/table" >"$VERBENA_SUMMARY"
exit "$code"
