#!/bin/sh
# The steps on a kernel RDMA device, a line each: in the one machine of scripts/rxe.sh, or on
# real hardware for scripts/device.sh. "names" prints the tests that passed. Without -race, which
# is too slow under emulation.
#
#   PLACE        the name of the place, for the steps' names
#   RXEVM_EXEC   for go test -exec: runs a test binary in that place
set -eu
: "${TESTTIMEOUT:=8m}" "${PLACE:=Soft-RoCE}" "${RXEVM_EXEC:=$RXEVM exec}"
there() {
	how=$1 name=$2
	shift 2
	"$TESTSUM" -o "$STEPS" "$how" "$name, $PLACE" -- \
		env CGO_ENABLED=1 go test -json -count=1 -vet=off -p 1 -timeout "$TESTTIMEOUT" -exec "$RXEVM_EXEC" "$@"
}

there tests "conformance" -run '^TestConformance(One)?Device' ./verbs/ibv
there tests "reactor" ./reactor
there tests "runtime" ./runtime
there names "interop" ./runtime/interop
# The examples take their device from VERBENA_DEVICE; "ibv:" is the first usable.
VERBENA_DEVICE="ibv:${VERBENA_TEST_DEVICES:+${VERBENA_TEST_DEVICES%%,*}}"
export VERBENA_DEVICE
there tests "examples" ./examples/...
