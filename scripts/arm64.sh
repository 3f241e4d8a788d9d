#!/bin/sh
# The tests that need no device, on arm64: a part of make stress. They are built without cgo and
# run by qemu-aarch64, the system's or Debian's, which is fetched into the cache of
# internal/rxevm, without root. Where it is not available, one line gives the reason, and the
# step counts as not run.
#
# Emulation on an x86 processor has the x86 memory order, which is the stronger one. So this
# tests code for arm64, its atomics, alignment and page sizes, but not reordered stores, which
# only a real arm64 processor shows.
#
#   TESTTIMEOUT=30m            time for each package
#   VERBENA_RXEVM_CACHE=dir    folder of the emulator
set -eu
cd "$(dirname "$0")/.."

GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
export GOFLAGS
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
go build -o "$tmp/testsum" ./scripts/testsum
go build -o "$tmp/rxevm" ./internal/rxevm/cmd/rxevm
sum() { "$tmp/testsum" -o "$tmp/steps" "$@"; }

# The program's path, or the reason why there is none.
code=0
emulator=$("$tmp/rxevm" emulator) || code=$?
case $code in
0)
	# -short: emulation takes 10 to 40 times as long. Without the packages whose tests start
	# programs, which the host's kernel would have to run.
	sum tests "tests, arm64" -- env GOARCH=arm64 CGO_ENABLED=0 go test -json -count=1 -vet=off -short -p 1 \
		-timeout "${TESTTIMEOUT:-30m}" -exec "$emulator" \
		./futures/... ./internal/mem ./internal/ring ./internal/sys ./reactor/... ./verbs/... ./runtime/...
	;;
3) sum notrun "tests, arm64" "$emulator" ;;
*) sum check "emulator of arm64" -- sh -c 'echo "$0" >&2; exit 1' "$emulator" ;;
esac
sum table
