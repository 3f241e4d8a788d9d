#!/bin/sh
# Fuzzes all targets of the repository for a time: sh scripts/fuzz.sh [10m [PACKAGE...]]
# FUZZJOBS=n runs n at a time, each with one worker; by default one for each processor. Findings
# are left in testdata/fuzz beside the target, and fail ordinary tests from then on.
set -eu
cd "$(dirname "$0")/.."
time=${1:-10m}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- ./...
GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -trimpath"
export GOFLAGS
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
go build -o "$tmp/testsum" ./scripts/testsum
"$tmp/testsum" -o "$tmp/steps" fuzz "fuzz, $time each" "$time" "$@"
"$tmp/testsum" -o "$tmp/steps" table
