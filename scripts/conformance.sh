#!/bin/sh
# Writes docs/conformance.md anew: runs the conformance suite on every pair that
# there is here, and makes the document of their reports.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
VERBENA_CONFORMANCE_OUT="$dir" go test -count=1 -run '^TestConformance' ./verbs/soft ./verbs/ibv
go run ./verbs/verbstest/table "$dir" >"$dir/conformance.md"
mv "$dir/conformance.md" docs/conformance.md
