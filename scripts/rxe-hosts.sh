#!/bin/sh
# The tests of scripts/rxe.sh that boot machines themselves and drive them from this host: a line
# each.
set -eu
: "${TESTTIMEOUT:=8m}"
on_host() {
	name=$1
	shift
	"$TESTSUM" -o "$STEPS" tests "$name" -- \
		go test -json -count=1 -vet=off -p 1 -timeout "$TESTTIMEOUT" -tags verbena_rxevm "$@"
}

on_host "two guests" ./internal/rxevm/...
on_host "outages, two guests" ./runtime/internal/outage
# The node of each memory area, as the kernel reports it: in a machine that has two.
"$TESTSUM" -o "$STEPS" tests "placement, two NUMA nodes" -- "$RXEVM" with -numa 2 -- \
	env CGO_ENABLED=1 go test -json -count=1 -vet=off -p 1 -timeout "$TESTTIMEOUT" -exec "$RXEVM exec" \
	-run '^TestMemoryLiesOnItsReactorsNode$' ./runtime
