#!/bin/sh
# The whole test run of Verbena: `make test`, or `sh scripts/test.sh` where there is no make. It
# needs only Go; the network only for modules missing from the module cache, and for Debian's
# packages where there is QEMU to run Soft-RoCE in (scripts/rxe.sh). Each step runs even if one
# before it failed. Soft-RoCE runs beside other steps; the whole run takes minutes (see
# CONTRIBUTING.md). The last line is "N passed, N failed, N skipped"; the exit code is 0 if
# nothing failed.
#
#   FUZZTIME=500ms         time for each fuzz target
#   TESTTIMEOUT=5m         time for each package in each step
#   VERBENA_SUMMARY=file   the last line is written there too
set -eu
cd "$(dirname "$0")/.."

: "${FUZZTIME:=500ms}"
: "${TESTTIMEOUT:=5m}"
# The linter is built without the flags below, and cgo's output is made without them for it (scripts/lint.sh).
lintflags="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
# No version stamp in the builds here: git may be missing, or distrust the owner of the folder. No names of
# folders either: then a new clone finds what another one has built. No debugger's tables: building two
# packages and their tests from an empty cache took 62 s of processor and not 69, linking a test binary 0.2 to 0.6 s less.
# GOGC is for the compiler, which takes a tenth less of processor with it.
GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -trimpath -ldflags=-w -gcflags=all=-dwarf=false \"-toolexec=env GOGC=400\""
export GOFLAGS

command -v go >/dev/null 2>&1 || { echo "go is not installed, or not in PATH" >&2; exit 1; }
tmp=$(mktemp -d)
beside= rxe=0
trap '[ -z "$beside" ] || kill -TERM "-$beside" || :; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
go build -o "$tmp/testsum" ./scripts/testsum
steps=$tmp/steps
sum() { "$tmp/testsum" -o "$steps" "$@"; }
# The packages that have models.
modelled="./futures ./reactor/... ./runtime/actor ./runtime/internal/exec ./internal/ring ./internal/model/..."
# One goroutine on virtual time.
virtual='OnVirtualTime$|^TestSimulation'
# Tests in which the race detector has nothing to see: those above (the simulation runs,
# shortened, because the detector changes its other behavior), others of one goroutine that take seconds, those that
# count allocations, those that wait for a sleeping process, those that run compilers, those that repeat another
# with other addresses or profiles of devices, and the one that shows that another test can fail.
unraced='OnVirtualTime$|Allocates?Nothing$|Keeps?Nothing$|^Test(SimulationReplays|LineEveryInterleaving|ProbesOfManyQueuesAreSpread|QuickWayIsTheGeneralWay|EveryFlushIsNeeded|EveryLossOfPower|FloodOfManagementDatagrams|AnIdleProcessSleeps|BuildAtOnce|BuildWithoutCache|Repository|ReadmeProgram|FindAmongMany|TheStormSeesWhatIsLost|Conformance(Profiles|(Peers|RoCE)IPv6))$'
# Long tests to which memory, sockets and waiting of the portable build make no difference.
unported="$virtual"'|^Test(TheStormSeesWhatIsLost|ChaosAtTheEnd|NthCallFailsOnTheSoftwareRNIC|RemovalUnderLoad|ContextsOfUsersKeepNothing|ConformancePeersIPv6|ConformanceRoCEIPv6|OperationsAllocateNothing|RawReceivesAllocateNothing)$'
# MiB that TestStressLossySocket writes each way in the portable build and under the race detector.
lossy_mib=32
tests() { name=$1; shift; sum tests "$name" -- go test -json -count=1 -vet=off -timeout "$TESTTIMEOUT" "$@"; }
# whole NAME FLAG SKIP PACKAGE... is tests of packages and of runtime, whose tests come one after another and would take
# longer than all others: in three processes at once, two of them for runtime, in 105 s and not 150. Many tests wait,
# which leaves the processors idle: there is one package more at once than processors. All is compiled before, once.
half='^Test[A-M]' # of runtime's tests, by their time
whole() {
	name=$1 flag=$2 skip=$3
	shift 3
	go list $flag -export -test -deps "$@" ./runtime >/dev/null 2>&1 || : # the tests report what cannot be compiled
	(steps=$tmp/steps1 && tests "$name, runtime A to M" $flag -run "$half" -skip "$skip" ./runtime) >"$tmp/out1" 2>&1 &
	first=$!
	(steps=$tmp/steps2 && tests "$name, runtime N to Z" $flag -skip "$half|$skip" ./runtime) >"$tmp/out2" 2>&1 &
	second=$!
	tests "$name" $flag -p $(($(getconf _NPROCESSORS_ONLN) + 1)) -skip "$skip" "$@"
	wait "$first" "$second"
	cat "$tmp/out1" "$tmp/out2"
	cat "$tmp/steps1" "$tmp/steps2" >>"$steps"
	rm "$tmp/steps1" "$tmp/steps2"
}

sum check "build" -- go build ./...
# An emulated machine takes one processor, and nothing in it depends on the time: it runs beside
# the steps whose tests do not either. In a group of its own, so that it can be killed.
if command -v setsid >/dev/null 2>&1; then
	: >"$tmp/rxesteps"
	TESTSUM=$tmp/testsum STEPS=$tmp/rxesteps setsid sh scripts/rxe.sh >"$tmp/rxe" 2>&1 &
	beside=$!
fi
sum check "types, other systems and tags" -- sh scripts/cross.sh

# Asking the linter for its version makes it available; go run builds it, into the build cache. It runs
# vet too. From an empty cache that takes more than 5 minutes beside the machines: the next runs go on with it.
linter=$(sed -n 's/^GOLANGCI := //p' Makefile)
if why=$(GOFLAGS=$lintflags $(command -v timeout >/dev/null && echo timeout 90) go run "$linter" version 2>&1); then
	sum check "lint" -- sh scripts/lint.sh "$linter" "$lintflags"
else
	sum check "vet" -- go vet ./...
	sum notrun "lint" "golangci-lint cannot be had: $(printf '%s\n' "$why" | tail -n 1)"
fi

# The portable build: the packages that differ in it, internal/mem, internal/sys and verbs/ibv,
# and their direct importers.
portable=$(go list -tags portable -f '{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}' \
	./internal/... ./reactor/... ./runtime/... ./verbs/... | awk '/internal\/(mem|sys)( |$)|verbs\/ibv( |$)/ { print $1 }')
VERBENA_LOSSY_MIB=$lossy_mib tests "tests, portable" -tags portable -skip "$unported" $portable
# All interleavings of small worlds, on the real code. No other tests: a goroutine that reaches a
# hook while a world is explored is taken for one of its own, and tests leave timers behind.
tests "models" -tags verbena_model -run '^TestModel' $modelled
sum fuzz "fuzz, $FUZZTIME each" "$FUZZTIME" ./...

if [ -n "$beside" ]; then
	rxe=0
	wait "$beside" || rxe=$?
	beside=
	cat "$tmp/rxe"
	cat "$tmp/rxesteps" >>"$tmp/steps"
else
	TESTSUM=$tmp/testsum STEPS=$tmp/steps sh scripts/rxe.sh || rxe=$?
fi
[ "$rxe" -eq 0 ] || sum check "scripts/rxe.sh, exit code $rxe" -- false

# Alone, because they depend on time. The packages that take longest begin.
long="./verbs/soft ./reactor"
others=$(go list ./... | grep -v '/verbena/runtime$')
whole "tests" "" '^$' $long $others

# The race detector needs a C compiler, and a machine that can run its binaries. This is tested
# by building and running one.
mkdir "$tmp/probe"
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("ok") }\n' >"$tmp/probe/main.go"
if why=$(CGO_ENABLED=1 go build -race -o "$tmp/probe/probe" "$tmp/probe/main.go" 2>&1) &&
	why=$("$tmp/probe/probe" 2>&1); then
	# By default each process sleeps for a second before it exits, to catch goroutines that still
	# run. The tests themselves check that none does. Programs, which have few tests and take long to link,
	# are left to make stress.
	raced=$(echo "$others" | grep -Ev '/(benchmarks|examples|internal/lint|internal/rxevm|scripts)(/|$)')
	export GORACE="atexit_sleep_ms=0 ${GORACE:-}" CGO_ENABLED=1 VERBENA_LOSSY_MIB=$lossy_mib
	whole "tests, race detector" -race "$unraced" $long $raced
else
	sum notrun "tests, race detector" "no race build here: $(printf '%s\n' "$why" | grep -v '^#' | head -n 1)"
fi

code=0
sum table >"$tmp/table" || code=$?
cat "$tmp/table"
[ -z "${VERBENA_SUMMARY:-}" ] || tail -n 1 "$tmp/table" >"$VERBENA_SUMMARY"
exit "$code"
