package runtime

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/runtime/internal/proto"
)

// BenchmarkWriteBesideRefusals is what a WRITE takes, one each 200 µs, while a peer sends
// requests that the listener on the same reactor refuses: 20 in each millisecond. It
// reports the median and the 99th percentile in µs. The last should be at most three times
// that of the quiet one; on a machine that does other things the peaks are its scheduler's.
func BenchmarkWriteBesideRefusals(b *testing.B) {
	for name, perMS := range map[string]int{"quiet": 0, "refusals=20/ms": 20} {
		b.Run(name, func(b *testing.B) {
			p, link := smallPorts(b, 1<<20)
			client, server := connected(b, Config{Provider: p})
			ln, err := server.rt.Listen(":0")
			if err != nil {
				b.Fatal(err)
			}
			region, err := client.rt.NewRegion(4096, allAccess)
			if err != nil {
				b.Fatal(err)
			}
			defer region.Close()
			remote, err := region.Remote(0, 8)
			if err != nil {
				b.Fatal(err)
			}
			buf, err := server.rt.Alloc(8)
			if err != nil {
				b.Fatal(err)
			}
			defer buf.Release()
			if perMS > 0 {
				defer newAsker(b, link, "127.0.0.9", ln.Addr(), []byte("no hello")).askOn(perMS)()
			}
			pace := time.NewTicker(200 * time.Microsecond)
			defer pace.Stop()
			ctx := testContext(b)
			var took []time.Duration
			for b.Loop() {
				<-pace.C
				at := time.Now()
				if _, err := server.Do(ctx, new(WriteOp(buf.Slice(), remote))); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
			}
			reportTook(b, took)
		})
	}
}

// reportTook reports the median and the 99th percentile.
func reportTook(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	micro := func(part int) float64 { return float64(took[len(took)*part/100].Nanoseconds()) / 1e3 }
	b.ReportMetric(micro(50), "p50-µs")
	b.ReportMetric(micro(99), "p99-µs")
}

// BenchmarkDialBesideSilentRequests is what it takes to connect, while a peer of another
// address sends 1,000 requests a second and answers nothing. The 99th percentile is to be
// less than 50 ms; TestDialingBesideAFloodOfSilentRequests has it on virtual time.
func BenchmarkDialBesideSilentRequests(b *testing.B) {
	for name, perMS := range map[string]int{"quiet": 0, "silent=1/ms": 1} {
		b.Run(name, func(b *testing.B) {
			p, link := smallPorts(b, 1<<20)
			server := mustOpen(b, Config{Provider: p, Device: "soft1"})
			client := mustOpen(b, Config{Provider: p, Device: "soft0"})
			ln, err := server.Listen(":0")
			if err != nil {
				b.Fatal(err)
			}
			if perMS > 0 {
				defer newAsker(b, link, "127.0.0.9", ln.Addr(), proto.EncodeHello(proto.Hello{Credits: 4, RecvSize: 4096})).askOn(perMS)()
			}
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			ctx := testContext(b)
			var took []time.Duration
			for b.Loop() {
				<-pace.C
				at := time.Now()
				c, err := client.Dial(ctx, ln.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
				s, err := ln.Accept(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if err := errors.Join(c.Close(ctx), s.Close(ctx)); err != nil {
					b.Fatal(err)
				}
			}
			reportTook(b, took)
		})
	}
}
