#!/bin/sh
# The steps on a kernel RDMA device, a line each: in the machines of scripts/rxe.sh and
# scripts/rxe-hosts.sh, or on real hardware for scripts/device.sh. The arguments name the steps; by
# default those for real hardware. "names" prints the tests that passed. Without -race, which is too slow
# under emulation.
#
#   QUICK        if not empty, a part of the conformance suite and of the examples' tests
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

cases='^TestConformance(One)?Device|^TestLateCopies' examples=. programs=./examples/...
if [ -n "${QUICK:-}" ]; then
	# Without two ends on one device, which is a way through the device and not through ours, and with the queues of
	# ibv_start_poll only where they differ: those take 35 s. The examples' other tests take 40 s, and those of
	# package rpma 25.
	cases='^TestLateCopies|^TestConformanceDevice((From|To)Soft)?$|^TestConformanceDeviceExtendedCQ$/(cq_|queue|poll|arm|solicited|channel|signaled|complet|imm|flush|ud_)'
	examples='^TestTwoProcesses$' programs='./examples/demo ./examples/[01]*'
fi
for step in ${*:-conformance reactor runtime rdmacm rpma interop examples}; do
	case $step in
	conformance) there tests "conformance" -run "$cases" ./verbs/ibv ;;
	reactor) there tests "reactor" ./reactor ;;
	# Without tests that use no device, and 40 s of the machine's time.
	runtime)
		there tests "runtime" -skip '^Test(EveryErrorAnswers|ManualsNameTheirOwnErrors|PlainConnectionBetweenMachines)$' ./runtime
		;;
	rdmacm) there tests "rdmacm" ./rdmacm ;;
	rpma) there tests "rpma" ./runtime/rpma ;;
	# The node of each memory area, as the kernel reports it.
	placement) there tests "placement, two NUMA nodes" -run '^TestMemoryLiesOnItsReactorsNode$' ./runtime ;;
	# Soft-RoCE completes a receive before it acknowledges it, and a queue pair in ERR acknowledges nothing
	# (rxe_resp.c, rxe_receiver, of Linux 6.12). A peer that asks for 7 retries retries for ever (rxe_comp.c,
	# COMPST_ERROR_RETRY). So a program that disconnects after its last receive, as rdma_client does, leaves its
	# peer waiting if it is faster than the kernel, which takes a second processor.
	interop)
		[ -z "${RXEVM:-}" ] || "$RXEVM" exec /bin/sh -c 'echo 0 >/sys/devices/system/cpu/cpu1/online'
		there names "interop" ./runtime/interop ./runtime/rpma/interop ./rdmacm/interop
		;;
	# The examples take their device from VERBENA_DEVICE; "ibv:" is the first usable.
	examples)
		VERBENA_DEVICE="ibv:${VERBENA_TEST_DEVICES:+${VERBENA_TEST_DEVICES%%,*}}"
		export VERBENA_DEVICE
		there tests "examples" -run "$examples" $programs
		;;
	*) echo "no step $step" >&2; exit 1 ;;
	esac
done
