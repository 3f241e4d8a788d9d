package plog

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// lazyPort is a port that counts the operations that were started and not posted. Its waiter is itself.
type lazyPort struct {
	unposted  int
	postFails error
	ended     func() error
}

func (p *lazyPort) post(_ context.Context, writes []write, flushes []span) (int, waiter, error) {
	p.unposted += len(writes) + len(flushes)
	return len(writes) + len(flushes), p, p.postFails
}

func (p *lazyPort) flush()                                  { p.unposted = 0 }
func (p *lazyPort) askHead(context.Context) (uint64, error) { return 0, nil }
func (p *lazyPort) discard()                                {}
func (p *lazyPort) wait(context.Context) error              { return p.ended() }

// Rule: whatever becomes of Start and Append, no operation that they have started is left unposted.
func TestRecordsArePosted(t *testing.T) {
	failure := errors.New("failure")
	for name, x := range map[string]struct {
		postFails error
		wait      func() error
	}{
		"a wait that ends at once": {nil, func() error { return failure }},
		"a post that fails":        {failure, nil},
		"a context that panics":    {nil, func() error { panic(failure) }},
	} {
		p := &lazyPort{postFails: x.postFails, ended: x.wait}
		w := newWriter(p, &grant{log: layout{lanes: 1, laneSize: 1 << 16}})
		func() {
			defer func() { _ = recover() }()
			if _, err := w.Append(t.Context(), []byte("record")); !errors.Is(err, failure) {
				t.Errorf("%s: Append returned %v, want %v", name, err, failure)
			}
		}()
		if p.unposted != 0 {
			t.Errorf("%s: Append left %d operations unposted", name, p.unposted)
		}
	}
	p := new(lazyPort)
	w := newWriter(p, &grant{log: layout{lanes: 1, laneSize: 1 << 16}})
	must.Get(w.Start(t.Context(), []byte("record")))(t)
	if p.unposted != 0 {
		t.Errorf("Start left %d operations unposted", p.unposted)
	}
}
