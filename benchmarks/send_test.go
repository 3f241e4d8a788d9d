package main

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// BenchmarkPingPong measures a message of 8 bytes to a goroutine at the peer and its answer,
// beside the same between two goroutines over channels.
func BenchmarkPingPong(b *testing.B) {
	p, base := newPair(b, 8), newPingPong(b)
	echoed := make(chan error, 1)
	go func() { echoed <- echo(p.b) }()
	b.Cleanup(func() {
		must.Do(b, p.a.Close(context.Background()))
		if err := <-echoed; !errors.Is(err, verbena.ErrPeerClosed) {
			b.Error(err)
		}
	})
	ctx, word := context.Background(), make([]byte, 8)
	before := p.here.Stats()
	beside(b, "chan", 0, func(n int) {
		for range n {
			f := must.Get(p.a.SendBytes(ctx, word))(b)
			m := must.Get(p.a.RecvWait(ctx))(b)
			must.Do(b, m.Release())
			must.Get(f.Await(ctx))(b)
		}
	}, base.run)
	reportDoorbells(b, before, p.here.Stats())
}

// echo sends all messages back until the peer closes.
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
