// Command testsum runs the steps of scripts/test.sh and says at the end what
// was run, what was not, and why.
//
//	testsum -o FILE check NAME -- COMMAND...    a step that passes or fails as a whole
//	testsum -o FILE tests NAME -- COMMAND...    a step that prints go test -json
//	testsum -o FILE names NAME -- COMMAND...    the same, and the tests that passed are named
//	testsum -o FILE fuzz NAME TIME PACKAGE...   every fuzz target of the packages, TIME each
//	testsum -o FILE notrun NAME REASON          a step that cannot be run here
//	testsum -o FILE table                       the summary
//
// Each of the first five appends a record to FILE and exits with 0 even if the
// step failed, so that the steps after it are run too; table exits with 1 if
// anything failed or no test was run. Its last line is
//
//	N passed, N failed, N skipped
//
// where a test with subtests is not counted beside them, a package that fails
// without a failing test (a panic, a leak, a build) is one failure, a step of
// one command is one test, and skipped is all that was not run: skipped tests,
// cases that are not applicable, and steps.
//
// It needs nothing but the standard library.
package main
