// Command testsum runs the steps of scripts/test.sh and reports at the end the tests that were
// run, and those that were not, with the reasons.
//
//	testsum -o FILE check NAME -- COMMAND...    a step that passes or fails as a whole
//	testsum -o FILE tests NAME -- COMMAND...    a step that prints go test -json
//	testsum -o FILE names NAME -- COMMAND...    the same, and the tests that passed are named
//	testsum -o FILE fuzz NAME TIME PACKAGE...   every fuzz target of the packages, TIME each
//	testsum -o FILE notrun NAME REASON          a step that cannot be run here
//	testsum -o FILE table                       the summary
//
// Each of the first five appends a record to FILE and exits with 0 even if the step failed, so
// that the steps after it are run too; table exits with 1 if anything failed or no test was run.
// Its last line is
//
//	N passed, N failed, N skipped
//
// A test with subtests is not counted beside them. A package that fails without a failing test (a
// panic, a leak, a build) is one failure. A step of one command is one test. Skipped are all that
// were not run: skipped tests, cases that are not applicable, and steps.
//
// It uses only the standard library.
package main
