// Package report is what every suite of the benchmarks prints and writes: rows, each a
// figure of ours beside a baseline of the same run, with a goal and whether it is met.
// A row that could not be measured says why; it is never met.
package report
