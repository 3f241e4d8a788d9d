package main

import (
	"context"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// pair holds two runtimes on two devices of the software RNIC, and a connection.
type pair struct {
	here, there *verbena.Runtime
	a, b        *verbena.Conn
	local       verbena.Slice
	region      *verbena.Region // of there
	remote      verbena.Remote
}

func open(b *testing.B, device string) *verbena.Runtime {
	rt := must.Get(verbena.Open(verbena.Config{Device: device}))(b)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		must.Do(b, rt.Close(ctx))
	})
	return rt
}

// newPair connects, with size bytes on each side.
func newPair(b *testing.B, size int) *pair {
	ctx := b.Context()
	p := &pair{here: open(b, "soft0"), there: open(b, "soft1")}
	ln := must.Get(p.there.Listen("127.0.0.2:0"))(b)
	accepted := must.Get(ln.AcceptAsync())(b)
	p.a = must.Get(p.here.Dial(ctx, ln.Addr().String()))(b)
	p.b = must.Get(accepted.Await(ctx))(b)
	p.region = must.Get(p.there.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(b)
	p.remote = must.Get(p.region.Remote(0, size))(b)
	own := must.Get(p.here.NewRegion(size, verbs.AccessLocalWrite))(b)
	p.local = must.Get(own.Slice(0, size))(b)
	return p
}

// write performs n writes, one after the other.
func (p *pair) write(b *testing.B, n int) {
	ctx := context.Background()
	for range n {
		f := must.Get(p.a.Write(ctx, p.local, p.remote))(b)
		must.Get(f.Await(ctx))(b)
	}
}

// wave keeps many writes outstanding and waits for all at once.
type wave struct {
	group futures.Group
	fs    []verbena.Future
}

// run performs n writes, at most under at a time.
func (w *wave) run(b *testing.B, p *pair, n, under int) {
	ctx := context.Background()
	for ; n > 0; n -= under {
		w.fs = w.fs[:0]
		for range min(n, under) {
			f, err := p.a.Write(ctx, p.local, p.remote)
			if err == nil {
				err = futures.Add(&w.group, f)
			}
			if err != nil {
				b.Error(err) // not Fatal: not always the benchmark's goroutine
				return
			}
			w.fs = append(w.fs, f)
		}
		if err := w.group.Wait(ctx); err != nil {
			b.Error(err)
			return
		}
		for _, f := range w.fs {
			if _, err, _ := f.Poll(); err != nil {
				b.Error(err)
				return
			}
		}
	}
}
