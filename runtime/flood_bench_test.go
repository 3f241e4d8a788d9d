package runtime

import (
	"slices"
	"testing"
	"time"
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
				a := newAsker(b, link, "127.0.0.9", ln.Addr(), []byte("no hello"))
				stop, stopped := make(chan struct{}), make(chan struct{})
				defer func() { close(stop); <-stopped }()
				go func() {
					defer close(stopped)
					tick := time.NewTicker(time.Millisecond)
					defer tick.Stop()
					for {
						select {
						case <-stop:
							return
						case <-tick.C:
							a.ask(perMS)
						}
					}
				}()
			}
			pace := time.NewTicker(200 * time.Microsecond)
			defer pace.Stop()
			ctx := testContext(b)
			var took []time.Duration
			for b.Loop() {
				<-pace.C
				at := time.Now()
				if _, err := server.WriteWait(ctx, buf.Slice(), remote); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			micro := func(part int) float64 { return float64(took[len(took)*part/100].Nanoseconds()) / 1e3 }
			b.ReportMetric(micro(50), "p50-µs")
			b.ReportMetric(micro(99), "p99-µs")
		})
	}
}
