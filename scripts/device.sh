#!/bin/sh
# The suites of scripts/rxe-steps.sh on the RDMA device of this machine, without a virtual one,
# and a report of it to send in:
#
#	make test-device DEV=mlx5_0        both ends on one device
#	make test-device DEV=mlx5_0,mlx5_1 two devices that reach each other
#
# The report is verbena-device-DEV.txt in the repository: the system, its libraries, the device's
# attributes, the result of each conformance case, the summary. It has no addresses except those
# of the device. Like the tests on Soft-RoCE it needs a C compiler, and rights to the device and
# to lock memory.
set -eu
cd "$(dirname "$0")/.."
: "${TESTTIMEOUT:=8m}"

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
for d in $(printf '%s' "$dev" | tr ',' ' '); do
	if [ ! -d "/sys/class/infiniband/$d" ]; then
		echo "$d is no RDMA device of this machine; RDMA devices here: ${have:-none}" >&2
		[ -n "$have" ] || echo "is its driver loaded (lsmod), and is this not inside a container without /sys/class/infiniband?" >&2
		exit 1
	fi
done
case $dev in
*,*) pair=$dev ;;
*) pair=$dev,$dev ;;
esac
if ! built=$(CGO_ENABLED=1 go build ./verbs/ibv 2>&1); then
	printf 'verbs/ibv cannot be built here:\n%s\n' "$built" >&2
	exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

# Problems that affect all tests are reported once, before they begin: a device that cannot be
# opened ends the script here, whatever else the report is for. Notes are a part of the report.
note() { echo "note: $*" | tee -a "$tmp/notes" >&2; }
: >"$tmp/notes"
locked=$(ulimit -l 2>/dev/null || echo '?')
[ "$locked" = unlimited ] || note "only $locked kB of memory can be locked (ulimit -l): registrations may fail"
for c in ibv_devinfo ibv_rc_pingpong rping; do
	command -v "$c" >/dev/null 2>&1 || note "$c is not installed (Debian: ibverbs-utils, rdmacm-utils): what talks to it is skipped"
done
CGO_ENABLED=1 GOFLAGS=$GOFLAGS go build -o "$tmp/echo" ./examples/01-connect-and-echo
for d in $(printf '%s' "$dev" | tr ',' ' '); do
	grep -qs ACTIVE "/sys/class/infiniband/$d"/ports/*/state || note "no port of $d is active"
	if ! said=$(VERBENA_DEVICE="ibv:$d" timeout 60 "$tmp/echo" 2>&1); then
		case $said in
		*"opening device"*)
			echo "$d cannot be used: $said" >&2
			exit 1
			;;
		esac
		note "example 01 does not run on $d: $said"
	fi
done

VERBENA_TEST_DEVICES=$pair VERBENA_CONFORMANCE_OUT=$tmp/conformance
export GOFLAGS VERBENA_TEST_DEVICES VERBENA_CONFORMANCE_OUT
mkdir "$VERBENA_CONFORMANCE_OUT"
go build -o "$tmp/testsum" ./scripts/testsum
# The same lines as in the machine; env takes the place of "rxevm exec".
TESTSUM=$tmp/testsum STEPS=$tmp/steps RXEVM_EXEC=env PLACE="$dev" \
	sh scripts/rxe-steps.sh 2>&1 | tee "$tmp/run"
code=0
"$tmp/testsum" -o "$tmp/steps" table >"$tmp/table" || code=$?
cat "$tmp/table"

report=verbena-device-$(printf '%s' "$dev" | tr ',' '+').txt
ask() { # a heading, and what a command says, if it is there
	printf '\n== %s\n' "$1"
	shift
	if command -v "$1" >/dev/null 2>&1; then
		"$@" 2>&1 || true
	else
		echo "$1 is not installed"
	fi
}
{
	echo "Verbena on $dev, $(date -u +%Y-%m-%d)"
	printf '\n== notes\n'
	cat "$tmp/notes"
	ask "revision" git describe --always --abbrev=40 --dirty
	ask "system" uname -srm
	grep -h '^PRETTY_NAME' /etc/os-release 2>/dev/null || true
	ask "go" go version
	printf '\n== libraries\n'
	ls -l /usr/lib/*/libibverbs.so.1* /usr/lib64/libibverbs.so.1* /usr/lib/*/librdmacm.so.1* /usr/lib64/librdmacm.so.1* 2>/dev/null || true
	if command -v dpkg-query >/dev/null 2>&1; then
		dpkg-query -W rdma-core libibverbs1 librdmacm1 librdmacm1t64 ibverbs-providers 2>/dev/null || true
	elif command -v rpm >/dev/null 2>&1; then
		rpm -q rdma-core libibverbs librdmacm || true
	fi
	for d in $(printf '%s' "$dev" | tr ',' ' '); do
		printf '\n== /sys/class/infiniband/%s\n' "$d"
		driver=$(readlink "/sys/class/infiniband/$d/device/driver" 2>/dev/null || true)
		[ -z "$driver" ] || echo "driver: ${driver##*/}"
		for f in fw_ver hca_type board_id node_type ports/1/state ports/1/rate ports/1/link_layer; do
			[ ! -r "/sys/class/infiniband/$d/$f" ] || printf '%s: %s\n' "$f" "$(cat "/sys/class/infiniband/$d/$f" 2>/dev/null)"
		done
		ask "ibv_devinfo -v" ibv_devinfo -v -d "$d"
	done
	printf '\n== conformance\n'
	for f in "$VERBENA_CONFORMANCE_OUT"/*; do
		[ ! -f "$f" ] || { printf -- '-- %s\n' "${f##*/}"; cat "$f"; echo; }
	done
	printf '\n== run\n'
	cat "$tmp/run" "$tmp/table"
} >"$report"
echo "the report is $report: please send it in with an issue"
exit "$code"
