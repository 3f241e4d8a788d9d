package main

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
)

// Units reported in addition to ns/op.
const (
	wrPerDoorbell  = "wr/doorbell"
	doorbellsPerWR = "doorbells/wr"
)

// reportDoorbells reports the doorbells of the sends between two readings.
func reportDoorbells(b *testing.B, before, after reactor.Stats) {
	after.Doorbells -= before.Doorbells
	after.WorkRequests -= before.WorkRequests
	b.ReportMetric(after.WRsPerDoorbell(), wrPerDoorbell)
	b.ReportMetric(float64(after.Doorbells)/float64(max(after.WorkRequests, 1)), doorbellsPerWR)
}

// blockOps is the number of operations in a block: long compared with the noise of the clock and
// the scheduler, short compared with changes on a shared machine.
const blockOps = 4096

// beside runs b.N operations of ours and as many of another, in alternating blocks, and reports
// ns/op of both and the ratio; with bytes per operation also GB/s of both. The functions take the
// number of operations.
func beside(b *testing.B, other string, bytes int, ours, theirs func(n int)) {
	b.Helper()
	b.ReportAllocs()
	ours(min(b.N, blockOps)) // pools and caches fill
	theirs(min(b.N, blockOps))
	b.ResetTimer()
	var mine, its time.Duration
	for done := 0; done < b.N; done += blockOps {
		n := min(blockOps, b.N-done)
		start := time.Now()
		ours(n)
		mid := time.Now()
		theirs(n)
		mine += mid.Sub(start)
		its += time.Since(mid)
	}
	ops := float64(b.N)
	b.ReportMetric(float64(mine.Nanoseconds())/ops, "ns/op")
	b.ReportMetric(float64(its.Nanoseconds())/ops, other+"-ns/op")
	b.ReportMetric(float64(mine)/float64(max(its, 1)), "x-"+other)
	if bytes > 0 {
		b.ReportMetric(float64(bytes)*ops/float64(mine.Nanoseconds()), "GB/s")
		b.ReportMetric(float64(bytes)*ops/float64(max(its.Nanoseconds(), 1)), other+"-GB/s")
	}
}
