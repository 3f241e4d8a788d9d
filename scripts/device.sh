#!/bin/sh
# The suites of scripts/rxe-steps.sh on the RDMA device of this machine, without a virtual one,
# and a report of it to send in:
#
#	make test-device DEV=mlx5_0        both ends on one device
#	make test-device DEV=mlx5_0,mlx5_1 two devices that reach each other
#	make test-device DEV=rxe0          all of it in the test machine with Soft-RoCE (internal/rxevm),
#	                                   where this machine has no such device
#
#	SUITES=            steps of scripts/rxe-steps.sh: by default all for hardware; none: only the report
#	REPORT=            further flags of scripts/device, such as -conns 100
#
# The report is verbena-device-DEV.txt in the repository, and .json the measured part of it:
# scripts/device has its contents, and what it leaves out: addresses, host names, users. Like the tests on
# Soft-RoCE it needs a C compiler, and rights to the device and to lock memory.
set -eu
cd "$(dirname "$0")/.."
: "${TESTTIMEOUT:=8m}" "${SUITES=conformance reactor runtime rdmacm rpma interop examples}" "${REPORT:=}"

usage() {
	echo "$1; RDMA devices here: ${have:-none}" >&2
	exit 2
}
dev=${1:-}
have=$(ls /sys/class/infiniband 2>/dev/null | tr '\n' ' ' || true)
case $dev in
'') usage "which device? make test-device DEV=name, or DEV=name,name for two that reach each other" ;;
,* | *, | *,,* | *,*,* | *[!A-Za-z0-9_.,-]*) usage "DEV=$dev is no name, nor two with a comma between them" ;;
esac
GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
export GOFLAGS
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM

# In the test machine "rxevm exec" runs each program; env takes its place here.
there=env
if [ -n "${VERBENA_RXEVM:-}" ]; then
	RXEVM=$tmp/rxevm there="$tmp/rxevm exec"
	export RXEVM
	go build -o "$RXEVM" ./internal/rxevm/cmd/rxevm
else
	for d in $(printf '%s' "$dev" | tr ',' ' '); do
		[ ! -d "/sys/class/infiniband/$d" ] || continue
		case $dev in
		rxe[01] | rxe0,rxe1 | rxe1,rxe0)
			go build -o "$tmp/rxevm" ./internal/rxevm/cmd/rxevm
			"$tmp/rxevm" prepare >&2
			SUITES=$SUITES "$tmp/rxevm" with -- sh scripts/device.sh "$dev"
			exit
			;;
		esac
		echo "$d is no RDMA device of this machine; RDMA devices here: ${have:-none}" >&2
		[ -n "$have" ] || echo "is its driver loaded (lsmod), and is this not inside a container without /sys/class/infiniband?" >&2
		exit 1
	done
fi
case $dev in
*,*) pair=$dev ;;
*) pair=$dev,$dev ;;
esac
if ! built=$(CGO_ENABLED=1 go build ./verbs/ibv 2>&1); then
	printf 'verbs/ibv cannot be built here:\n%s\n' "$built" >&2
	exit 1
fi

# Problems that affect all tests are reported once, before they begin: a device that cannot be
# opened ends the script here, whatever else the report is for. Notes are a part of the report.
note() { echo "note: $*" | tee -a "$tmp/notes" >&2; }
: >"$tmp/notes"
if [ "$there" = env ]; then
	locked=$(ulimit -l 2>/dev/null || echo '?')
	[ "$locked" = unlimited ] || note "only $locked kB of memory can be locked (ulimit -l): registrations may fail"
	for c in ibv_devinfo ibv_rc_pingpong rping; do
		command -v "$c" >/dev/null 2>&1 || note "$c is not installed (Debian: ibverbs-utils, rdmacm-utils): what talks to it is skipped"
	done
fi
CGO_ENABLED=1 go build -o "$tmp/echo" ./examples/01-connect-and-echo
CGO_ENABLED=1 go build -o "$tmp/device" ./scripts/device
for d in $(printf '%s' "$dev" | tr ',' ' '); do
	[ "$there" != env ] || grep -qs ACTIVE "/sys/class/infiniband/$d"/ports/*/state || note "no port of $d is active"
	if ! said=$(VERBENA_DEVICE="ibv:$d" timeout 60 $there "$tmp/echo" 2>&1); then
		case $said in
		*"opening device"*)
			echo "$d cannot be used: $said" >&2
			exit 1
			;;
		esac
		note "example 01 does not run on $d: $said"
	fi
done

VERBENA_CONFORMANCE_OUT=$tmp/conformance
export VERBENA_CONFORMANCE_OUT
mkdir "$VERBENA_CONFORMANCE_OUT"
code=0
: >"$tmp/run"
: >"$tmp/table"
if [ -n "$SUITES" ] && [ "$SUITES" != none ]; then
	# The test machine's programs have its two devices in VERBENA_TEST_DEVICES.
	[ "$there" != env ] || { VERBENA_TEST_DEVICES=$pair; export VERBENA_TEST_DEVICES; }
	go build -o "$tmp/testsum" ./scripts/testsum
	TESTSUM=$tmp/testsum STEPS=$tmp/steps RXEVM_EXEC=$there PLACE="$dev" \
		sh scripts/rxe-steps.sh $SUITES 2>&1 | tee "$tmp/run"
	"$tmp/testsum" -o "$tmp/steps" table >"$tmp/table" || code=$?
	cat "$tmp/table"
fi

report=verbena-device-$(printf '%s' "$dev" | tr ',' '+')
$there "$tmp/device" -json - -revision "$(git describe --always --abbrev=40 --dirty 2>/dev/null || echo unknown)" $REPORT "$dev" >"$tmp/measured"
"$tmp/device" -from "$tmp/measured" -conformance "$VERBENA_CONFORMANCE_OUT" -json "$report.json" -text "$report.txt"
{
	printf '\n== notes\n'
	if [ -s "$tmp/notes" ]; then cat "$tmp/notes"; else echo none; fi
	for d in $(printf '%s' "$dev" | tr ',' ' '); do
		printf '\n== ibv_devinfo -v -d %s\n' "$d"
		$there /bin/sh -c 'command -v ibv_devinfo >/dev/null || { echo "not installed"; exit; }; exec ibv_devinfo -v -d "$0"' "$d" 2>&1 || true
	done
	printf '\n== run\n'
	cat "$tmp/run" "$tmp/table"
} | "$tmp/device" mask >>"$report.txt"
echo "the report is $report.txt, and its measurements are $report.json: please send both in with an issue"
exit "$code"
