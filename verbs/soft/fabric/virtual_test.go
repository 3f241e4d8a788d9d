package fabric

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// tracedRun returns the trace hash of a run of four answering nodes under faults.
func tracedRun(t *testing.T, seed uint64) (sum uint64, events int) {
	f := New(Config{Virtual: true, Seed: seed})
	digest := xxhash.New()
	f.SetTrace(func(ev Event) {
		events++
		var b []byte
		for _, v := range []uint64{uint64(ev.Now), ev.Ordinal, uint64(ev.PayloadLen), ev.PayloadHash, uint64(ev.Verdict), uint64(ev.Due)} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
		b = append(append(append(b, ev.Src[:]...), ev.Dst[:]...), ev.Hdr...)
		digest.Write(b)
	}, true)
	toys := []*toy{{answers: true}, {answers: true}, {answers: true}, {answers: true}}
	attach(t, f, toys...)
	f.SetAll(Link{Loss: 0.1, Dup: 0.1, Reorder: 0.1, Delay: time.Microsecond, Jitter: time.Microsecond})
	f.SetLink(gid(0), gid(3), Link{Rules: []Rule{{Every: 5, Corrupt: true, Offset: 9, Mask: 0xff}}})
	key := make([]byte, 8)
	for i := range 200 {
		if _, err := io.ReadFull(f.Rand(), key); err != nil {
			t.Fatal(err)
		}
		e := toys[i%len(toys)]
		e.inTurn(func() { e.send(gid((i+1+i%3)%len(toys)), wire.RCSendOnly, wire.PSN(i), key, nil) })
		settle(f, f.Now()+300*time.Nanosecond)
	}
	settle(f, f.Now()+time.Second)
	return digest.Sum64(), events
}

func TestSameSeedGivesTheSameRun(t *testing.T) {
	a, n := tracedRun(t, 42)
	b, m := tracedRun(t, 42)
	if a != b || n != m {
		t.Errorf("seed 42 gave %x (%d events) and %x (%d events)", a, n, b, m)
	}
	if n < 300 {
		t.Errorf("only %d events: the trace does not see the run", n)
	}
	if c, _ := tracedRun(t, 43); c == a {
		t.Error("another seed gave the same run")
	}
}

func TestVirtualTimeDoesNothingByItself(t *testing.T) {
	f := New(Config{Virtual: true})
	a := &toy{}
	attach(t, f, a)
	a.port.Kick()
	if a.turns != 0 {
		t.Fatal("Kick turned an endpoint in virtual time")
	}
	if !f.Step() || a.turns != 1 {
		t.Fatalf("Step after Kick: %d turns, want 1", a.turns)
	}
	if f.Step() {
		t.Fatal("Step found something to do twice")
	}
	a.port.Wake()
	if !f.Step() || a.turns != 2 {
		t.Fatalf("Step after Wake: %d turns, want 2", a.turns)
	}
}

func TestVirtualDeadlines(t *testing.T) {
	f := New(Config{Virtual: true})
	a := &toy{deadline: 5 * time.Millisecond}
	var times []time.Duration
	a.onTurn = func(now time.Duration) {
		times = append(times, now)
		if now >= a.deadline {
			a.deadline += 5 * time.Millisecond
		}
		if now >= 15*time.Millisecond {
			a.deadline = 0
		}
	}
	attach(t, f, a)
	if _, ok := f.NextEvent(); ok {
		t.Error("an endpoint that was never turned has a deadline")
	}
	a.port.Kick()
	settle(f, time.Second)
	want := []time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond}
	if !slices.Equal(times, want) {
		t.Errorf("turned at %v, want %v", times, want)
	}
	f.AdvanceTo(time.Millisecond)
	if f.Now() != time.Second {
		t.Errorf("time went back to %v", f.Now())
	}
}

func TestPacketsLeftInTheInboxAreTurnedAgain(t *testing.T) {
	for _, virtual := range []bool{true, false} {
		f := New(Config{Virtual: virtual})
		a, b := &toy{}, &toy{limit: 3}
		attach(t, f, a, b)
		sendMany(a, 1, 10, wire.RCSendOnly)
		if virtual {
			settle(f, 0)
		}
		b.inTurn(func() {
			if len(b.psns) != 10 || b.turns != 4 {
				t.Errorf("virtual %v: an endpoint that takes 3 at a time took %d of 10 in %d turns, want all in 4", virtual, len(b.psns), b.turns)
			}
		})
	}
}

func TestStepNeedsVirtualTime(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Step on real time did not panic")
		}
	}()
	New(Config{}).Step()
}
