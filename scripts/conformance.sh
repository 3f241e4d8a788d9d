#!/bin/sh
# Rewrites docs/conformance.md: runs the conformance suite on all pairs available here, and on
# Soft-RoCE in the test machine (internal/rxevm lists its requirements), and makes the document
# from their reports. docs/coverage.md follows it.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/rxevm" ./internal/rxevm/cmd/rxevm
"$dir/rxevm" check # without the machine the document would lose its devices
VERBENA_CONFORMANCE_OUT="$dir" go test -count=1 -run '^TestConformance' ./verbs/soft ./verbs/ibv
VERBENA_CONFORMANCE_OUT="$dir" go test -count=1 -timeout 30m -exec "$dir/rxevm exec" \
	-run '^TestConformance(One)?Device' ./verbs/ibv
go run ./verbs/verbstest/table "$dir" >"$dir/conformance.md"
mv "$dir/conformance.md" docs/conformance.md
go run ./scripts/coverage # its columns are from that document
