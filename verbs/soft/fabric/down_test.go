package fabric

import (
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// TestNothingPassesAPortThatIsDown checks both directions, for packets sent before and during a
// run; holders are told, both sides count, and packets sent after the port came up arrive.
func TestNothingPassesAPortThatIsDown(t *testing.T) {
	f := New(Config{Virtual: true})
	a, b := &toy{}, &toy{}
	attach(t, f, a, b)
	var c counter
	a.inTurn(func() { a.send(gid(1), wire.RCSendOnly, 1, u64(1), &c) }) // waits at b
	b.inTurn(func() { b.port.SetDown(true) })
	if c.done.Load() != 1 {
		t.Error("what waited in the inbox did not go when the port went down")
	}
	b.onTurn = func(time.Duration) {
		b.onTurn = nil
		a.inTurn(func() { a.send(gid(1), wire.RCSendOnly, 2, u64(1), &c) })
	}
	sendMany(b, 0, 1, wire.RCSendOnly)
	settle(f, 0)
	if len(a.psns)+len(b.psns) != 0 {
		t.Errorf("over a port that is down a got %v and b got %v", a.psns, b.psns)
	}
	b.inTurn(func() { b.port.SetDown(false) })
	if s := b.port.Stats(); s.Dropped != 1 || s.Late != 2 || c.done.Load() != 2 {
		t.Errorf("dropped %d, late %d, holders told %d; want 1, 2, 2", s.Dropped, s.Late, c.done.Load())
	}
	sendMany(a, 1, 1, wire.RCSendOnly)
	sendMany(b, 0, 2, wire.RCSendOnly)
	settle(f, 0)
	if !slices.Equal(b.psns, psns(1)) || !slices.Equal(a.psns, psns(1, 2)) {
		t.Errorf("over a port that is up again a got %v and b got %v", a.psns, b.psns)
	}
}
