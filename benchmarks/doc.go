// Package benchmarks measures the way of an operation: submit, flush, poll and
// await, alone and together, with its allocations and its doorbells. What has a
// counterpart outside of this module (a channel, memcpy) is measured beside it, in
// alternating blocks of the same run. See README.md.
package benchmarks
