//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// nullControl reaches the null device beside the providers.
func nullControl(t *testing.T) *nulldev.Control {
	t.Helper()
	paths, err := nulldev.Build()
	if err != nil {
		t.Skip(err)
	}
	null, err := nulldev.Open(paths)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(null.Close)
	return null
}

// Rule: each reactor has a thread domain, where the device has them and the
// configuration does not say no; without, all works as before; nothing is left.
func TestEachReactorHasAThreadDomain(t *testing.T) {
	null := nullControl(t)
	for _, x := range []struct {
		name  string
		cfg   Config
		fault string // a call that fails
		want  int
	}{
		{name: "two_reactors", cfg: Config{Reactors: 2}, want: 4}, // of two runtimes
		{name: "switched_off", cfg: Config{NoThreadDomains: true}},
		{name: "no_thread_domains", fault: "ibv_alloc_td"},
		{name: "no_parent_domains", fault: "ibv_alloc_parent_domain"},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.fault != "" {
				if _, err := null.Add(nulldev.Fault{Kind: nulldev.FailCall, Call: x.fault, Err: syscall.EOPNOTSUPP}); err != nil {
					t.Fatal(err)
				}
				defer null.Clear()
			}
			a, b := nullBed.connected(t, x.cfg)
			if n := null.Stats().Objects.TD; n != x.want {
				t.Errorf("%d thread domains are alive, want %d", n, x.want)
			}
			ctx := testContext(t)
			src := bufferOf(t, a.rt, []byte("hello"))
			sent, err := a.Send(ctx, src.Slice())
			done(t, sent, err)
			m, err := b.RecvWait(ctx)
			if err != nil || string(m.Data) != "hello" {
				t.Fatalf("a message %q, error %v", m.Data, err)
			}
			if err := errors.Join(m.Release(), src.Release(), a.rt.Close(ctx), b.rt.Close(ctx)); err != nil {
				t.Fatal(err)
			}
			if o := null.Stats().Objects; o.TD != 0 || o.PD != 0 {
				t.Errorf("after closing both %v are alive", o)
			}
		})
	}
}

// Rule: queue pairs of one thread domain are never posted to at the same time,
// whoever submits, drives, dials and closes.
func TestThreadDomainIsKeptByAllWhoPost(t *testing.T) {
	null := nullControl(t)
	const (
		conns, posters = 4, 3
		writes, churns = 50, 30
		size           = 256 << 10 // copied within the post, which takes its time
	)
	cfg := Config{Reactors: 2}
	server, client := nullBed.open(t, cfg, 1), nullBed.open(t, cfg, 0)
	ctx := testContext(t)
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (a, b *Conn, err error) {
		seat, err := ln.AcceptAsync()
		if err != nil {
			return nil, nil, err
		}
		if a, err = client.Dial(ctx, ln.Addr().String()); err != nil {
			return nil, nil, err
		}
		b, err = seat.Await(ctx)
		return a, b, err
	}
	var wg sync.WaitGroup
	for range conns {
		a, b, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.rt.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		at, err := r.Remote(0, size)
		if err != nil {
			t.Fatal(err)
		}
		for range posters {
			src := bufferOf(t, a.rt, make([]byte, size))
			wg.Go(func() {
				for range writes {
					if _, err := a.Do(ctx, new(WriteOp(src.Slice(), at))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Go(func() { // new queue pairs, with their receives, beside the busy ones
		for range churns {
			a, b, err := dial()
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(a.Close(ctx), b.Close(ctx)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Wait()
	if s := null.Stats(); s.TDRaces != 0 || s.Objects.TD == 0 {
		t.Errorf("%d thread domains, %d posts of one overlapped", s.Objects.TD, s.TDRaces)
	}
}
