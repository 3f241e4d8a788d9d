#!/bin/sh
# The tests on Soft-RoCE: `make test-rxe`, and a part of scripts/test.sh. A machine with the
# kernel's software RDMA device is made of Debian packages and booted under QEMU
# (internal/rxevm); the suites of scripts/rxe-steps.sh run in it. Where that is not possible, one
# line gives the reason, and the steps count as not run.
#
#   QUICK=                    all of it, as make stress-rxe does: some 5 minutes more
#   TESTTIMEOUT=8m            time for each package in each step
#   VERBENA_RXEVM_INSTALL=1    root may install QEMU and other missing packages
#   VERBENA_RXEVM_CACHE=dir    folder of the machine's image
#
# Within scripts/test.sh TESTSUM and STEPS name its testsum and its record; otherwise this script
# has its own, and prints the summary at the end.
set -eu
cd "$(dirname "$0")/.."

: "${QUICK=1}"
export QUICK
GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -trimpath -ldflags=-w -gcflags=all=-dwarf=false"
export GOFLAGS
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
alone=
if [ -z "${TESTSUM:-}" ]; then
	alone=1
	TESTSUM=$tmp/testsum STEPS=$tmp/steps
	export TESTSUM STEPS
	go build -o "$TESTSUM" ./scripts/testsum
fi
sum() { "$TESTSUM" -o "$STEPS" "$@"; }

RXEVM=$tmp/rxevm
export RXEVM
go build -o "$RXEVM" ./internal/rxevm/cmd/rxevm

# prepare prints the reason why there can be no machine on standard output, and exits with 3; any
# other failure is an error of ours.
code=0
why=$("$RXEVM" prepare) || code=$?
if [ "$code" -eq 0 ] && ! built=$(CGO_ENABLED=1 go build ./verbs/ibv 2>&1); then
	code=3 why="verbs/ibv cannot be built: $(printf '%s\n' "$built" | grep -v '^#' | head -n 1)"
fi
case $code in
0)
	# One machine keeps one processor busy, so that the tests that boot machines of their own run
	# beside it.
	: >"$tmp/hosts"
	STEPS=$tmp/hosts sh scripts/rxe-hosts.sh >"$tmp/out" 2>&1 &
	# A step of its own: that the machine boots, and that its kernel logged no fault in all that
	# time.
	sum check "machine, Soft-RoCE" -- "$RXEVM" with -- sh scripts/rxe-steps.sh conformance reactor runtime
	wait $! || code=$?
	cat "$tmp/out"
	cat "$tmp/hosts" >>"$STEPS"
	[ "$code" -eq 0 ] || sum check "scripts/rxe-hosts.sh, exit code $code" -- false
	;;
3) sum notrun "everything on Soft-RoCE" "$why" ;;
*) sum check "image, Soft-RoCE" -- sh -c 'echo "$0" >&2; exit 1' "$why" ;;
esac

if [ -n "$alone" ]; then
	code=0
	sum table || code=$?
	exit "$code"
fi
