package main

import (
	"context"
	"errors"
	"testing"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// BenchmarkPingPong is a message of 8 bytes to a goroutine at the peer and its
// answer, beside the same of two goroutines over channels.
func BenchmarkPingPong(b *testing.B) {
	p, base := newPair(b, 8), newPingPong(b)
	echoed := make(chan error, 1)
	go func() { echoed <- echo(p.b) }()
	b.Cleanup(func() {
		check(b, p.a.Close(context.Background()))
		if err := <-echoed; !errors.Is(err, verbena.ErrPeerClosed) {
			b.Error(err)
		}
	})
	ctx, word := context.Background(), make([]byte, 8)
	before := p.here.Stats()
	beside(b, "chan", 0, func(n int) {
		for range n {
			f, err := p.a.SendBytes(ctx, word)
			check(b, err)
			m, err := p.a.RecvWait(ctx)
			check(b, err)
			check(b, m.Release())
			_, err = f.Await(ctx)
			check(b, err)
		}
	}, base.run)
	reportDoorbells(b, before, p.here.Stats())
}

// echo sends everything back until the peer closes.
func echo(c *verbena.Conn) error {
	ctx := context.Background()
	for {
		m, err := c.RecvWait(ctx)
		if err != nil {
			return err
		}
		f, err := c.SendBytes(ctx, m.Data)
		if err != nil {
			return err
		}
		f.Discard()
		if err := m.Release(); err != nil {
			return err
		}
	}
}
