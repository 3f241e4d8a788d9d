package main

import "testing"

// pingPong passes a token to another goroutine and back through two channels: the cost of
// switching between goroutines.
type pingPong struct{ there, back chan struct{} }

func newPingPong(b *testing.B) *pingPong {
	p := &pingPong{make(chan struct{}), make(chan struct{})}
	go func() {
		for range p.there {
			p.back <- struct{}{}
		}
		close(p.back)
	}()
	b.Cleanup(func() { close(p.there); <-p.back })
	return p
}

func (p *pingPong) run(n int) {
	for range n {
		p.there <- struct{}{}
		<-p.back
	}
}

// BenchmarkWrite8 measures one write of 8 bytes after the other, from call to result, beside a
// ping-pong of two goroutines over channels.
func BenchmarkWrite8(b *testing.B) {
	p, base := newPair(b, 8), newPingPong(b)
	before := p.here.Stats()
	beside(b, "chan", 0, func(n int) { p.write(b, n) }, base.run)
	reportDoorbells(b, before, p.here.Stats())
}

// BenchmarkWrite8Deep measures writes of 8 bytes, depth outstanding, awaited together.
func BenchmarkWrite8Deep(b *testing.B) {
	b.ReportAllocs()
	p, w := newPair(b, 8), wave{}
	w.run(b, p, 10*depth, depth)
	before := p.here.Stats()
	b.ResetTimer()
	w.run(b, p, b.N, depth)
	b.StopTimer()
	reportDoorbells(b, before, p.here.Stats())
	b.ReportMetric(float64(b.N)*1e3/float64(b.Elapsed().Nanoseconds()), "Mops/s")
}

// large is the size of a large write, in bytes.
const large = 64 << 10

// BenchmarkWrite64K measures one write of 64 KiB after the other, beside copying as much with
// copy.
func BenchmarkWrite64K(b *testing.B) { write64K(b, 1) }

// BenchmarkWrite64KDeep is the same with 16 outstanding.
func BenchmarkWrite64KDeep(b *testing.B) { write64K(b, 16) }

func write64K(b *testing.B, under int) {
	p, w := newPair(b, large), wave{}
	from, to := p.local.Bytes(), p.region.Bytes()
	before := p.here.Stats()
	beside(b, "memcpy", large, func(n int) {
		if under == 1 {
			p.write(b, n)
		} else {
			w.run(b, p, n, under)
		}
	}, func(n int) {
		for range n {
			copy(to, from)
		}
	})
	reportDoorbells(b, before, p.here.Stats())
}
