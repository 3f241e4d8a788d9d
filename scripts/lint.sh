#!/bin/sh
# Runs the linter ($1, a package with its version) on a copy of the tree in a folder whose name does not
# change. It remembers its findings by the full names of files: it would lint each new clone anew, which
# takes some three minutes beside other steps.
set -eu
cd "$(dirname "$0")/.."
dir=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/verbena-lint
mkdir -p "$dir"
exec 9>"$dir.lock"
! command -v flock >/dev/null 2>&1 || flock 9 # one run at a time
rm -rf "$dir"
mkdir "$dir"
tar -cf - --exclude=./.git . | tar -xf - -C "$dir"
cd "$dir"
go run "$1" run
