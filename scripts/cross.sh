#!/bin/sh
# Checks the module and its tests for the systems below, all without cgo, and here with each build tag: their
# types (scripts/typecheck), which takes seconds. "sh scripts/cross.sh build" also compiles and vets it
# for them, which takes minutes where the build cache has little: for make vet and make stress.
set -eu
cd "$(dirname "$0")/.."

systems="linux/amd64 linux/arm64 linux/386 linux/ppc64le linux/riscv64 linux/s390x
	darwin/amd64 darwin/arm64 windows/amd64 freebsd/amd64"
# shellcheck disable=SC2086 # a list
go run ./scripts/typecheck $systems linux/amd64,portable linux/amd64,verbena_model,verbena_rxevm
[ "${1:-}" = build ] || exit 0
for s in $systems; do
	echo "$s"
	GOOS=${s%/*} GOARCH=${s#*/} CGO_ENABLED=0 go build ./...
	GOOS=${s%/*} GOARCH=${s#*/} CGO_ENABLED=0 go vet ./...
done
