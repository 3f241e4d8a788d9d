#!/bin/sh
# lint.sh LINTER FLAGS runs the linter, a package with its version that is built with GOFLAGS=FLAGS, on a copy of the
# tree in a folder whose name does not change. It remembers its findings by the full names of files: it would lint each
# new clone anew, which takes some three minutes beside other steps.
#
# The linter reads what the compiler has made of the packages, and takes it from Go's cache if the tests have the same
# GOFLAGS: after a change of package reactor that saves 73 of 192 s of processor. Packages with cgo are linted with
# FLAGS, which have no -trimpath: with it, Go's cache may give the output of cgo for another clone, which names files of
# that clone.
set -eu
cd "$(dirname "$0")/.."
linter=$1 plain=$2 flags=${GOFLAGS:-}
dir=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/verbena-lint
mkdir -p "$dir"
exec 9>"$dir.lock"
! command -v flock >/dev/null 2>&1 || flock 9 # one run at a time
rm -rf "$dir"
mkdir "$dir"
tar -cf - --exclude=./.git . | tar -xf - -C "$dir"
cd "$dir"

# lint GOFLAGS not: the packages without cgo. lint GOFLAGS len: those with cgo, whose list of files that import "C" has
# a length.
lint() {
	folders=$(go list -f "{{if $2 .CgoFiles}}{{.Dir}}{{end}}" ./...)
	[ -n "$folders" ] || return 0 # no compiler: nothing has cgo
	# GOGC saves a fifth of the linter's time.
	GOFLAGS=$plain go run -exec "env 'GOFLAGS=$1' GOGC=300" "$linter" run $folders
}
lint "$flags" not
lint "$plain" len
