package futures

import (
	"context"
	"testing"
)

// BenchmarkNewSettlePoll is one operation's whole life on one goroutine, without a waiter.
func BenchmarkNewSettlePoll(b *testing.B) {
	p := NewPool(Options[int]{})
	b.ReportAllocs()
	for i := range b.N {
		pr, f := p.New(nil)
		pr.Settle(i, nil)
		if v, _, ok := f.Poll(); !ok || v != i {
			b.Fatalf("Poll = %d, %v; want %d, true", v, ok, i)
		}
	}
}

func BenchmarkNewSettlePollParallel(b *testing.B) {
	p := NewPool(Options[int]{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			pr, f := p.New(nil)
			pr.Settle(1, nil)
			f.Poll()
		}
	})
}

// BenchmarkGroup128 is one Wait for 128 futures, per future.
func BenchmarkGroup128(b *testing.B) {
	const n = 128
	p := NewPool(Options[int]{})
	var g Group
	ps, fs := make([]Promise[int], n), make([]Future[int], n)
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		for j := range n {
			ps[j], fs[j] = p.New(nil)
			if err := Add(&g, fs[j]); err != nil {
				b.Fatal(err)
			}
		}
		for j := range n {
			ps[j].Settle(j, nil)
		}
		if err := g.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		for j := range n {
			fs[j].Poll()
		}
	}
}

// BenchmarkPingPong is a round trip between two goroutines, each parked while the other runs: by
// futures and, for comparison, by channels.
func BenchmarkPingPong(b *testing.B) {
	b.Run("future", func(b *testing.B) {
		type turn struct {
			ping Promise[int]
			pong Future[int]
		}
		p := NewPool(Options[int]{})
		b.ReportAllocs()
		ping, pingF := p.New(nil)
		pong, pongF := p.New(nil)
		// Each side settles the other's future and leaves a new one of its own in its own slot.
		slot := [2]turn{{ping: ping, pong: pingF}, {ping: pong, pong: pongF}}
		end := make(chan struct{})
		n := b.N
		go func() {
			defer close(end)
			for range n {
				slot[0].pong.Await(context.Background())
				slot[0].ping, slot[0].pong = p.New(nil)
				slot[1].ping.Settle(1, nil)
			}
		}()
		b.ResetTimer()
		for range n {
			slot[0].ping.Settle(1, nil)
			slot[1].pong.Await(context.Background())
			slot[1].ping, slot[1].pong = p.New(nil)
		}
		<-end
	})
	b.Run("channel", func(b *testing.B) {
		ping, pong := make(chan int), make(chan int)
		end := make(chan struct{})
		n := b.N
		go func() {
			defer close(end)
			for range n {
				pong <- <-ping
			}
		}()
		b.ResetTimer()
		for i := range n {
			ping <- i
			<-pong
		}
		<-end
	})
}
