#!/bin/sh
# The tests of scripts/rxe.sh that boot machines themselves and drive them from this host, a line
# each; then a machine with two NUMA nodes, with some of the steps in one machine.
set -eu
: "${TESTTIMEOUT:=8m}"
on_host() {
	name=$1
	shift
	"$TESTSUM" -o "$STEPS" tests "$name" -- \
		go test -json -count=1 -vet=off -p 1 -timeout "$TESTTIMEOUT" -tags verbena_rxevm "$@"
}

[ -n "${QUICK:-}" ] || on_host "two guests" ./internal/rxevm/...
on_host "outages, two guests" ./runtime/internal/outage
on_host "killed machine, NVDIMM" -run '^TestKilledMachine' ./runtime/plog
"$TESTSUM" -o "$STEPS" check "machine with two NUMA nodes, Soft-RoCE" -- \
	"$RXEVM" with -numa 2 -- sh scripts/rxe-steps.sh placement rdmacm rpma interop examples
