// Package report prints and writes the results of all suites of the benchmarks: rows, each a
// figure of ours beside a baseline of the same run, with a goal and whether it is met. A row that
// could not be measured has the reason; it is never met.
package report
