package reactor_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: Stats.Add leaves no field out: what is named Max is the larger of both, and
// everything else is added.
func TestStatsOfSeveralReactorsLeaveNoFieldOut(t *testing.T) {
	var a, b reactor.Stats
	for k, s := range []*reactor.Stats{&a, &b} {
		v := reflect.ValueOf(s).Elem()
		for i := range v.NumField() {
			n := 1000*(i+1) + k
			switch f := v.Field(i); {
			case f.CanUint():
				f.SetUint(uint64(n))
			case f.CanInt():
				f.SetInt(int64(n))
			default:
				for j := range f.Len() {
					f.Index(j).SetUint(uint64(n + 7*j))
				}
			}
		}
	}
	number := func(v reflect.Value) uint64 {
		if v.CanInt() {
			return uint64(v.Int())
		}
		return v.Uint()
	}
	va, vb, sum := reflect.ValueOf(a), reflect.ValueOf(b), reflect.ValueOf(a.Add(b))
	for i := range sum.NumField() {
		name, x, y, z := sum.Type().Field(i).Name, va.Field(i), vb.Field(i), sum.Field(i)
		if x.Kind() == reflect.Array {
			for j := range x.Len() {
				if got, want := number(z.Index(j)), number(x.Index(j))+number(y.Index(j)); got != want {
					t.Errorf("%s[%d] of both is %d, want %d", name, j, got, want)
				}
			}
			continue
		}
		want := number(x) + number(y)
		if strings.HasPrefix(name, "Max") {
			want = max(number(x), number(y))
		}
		if got := number(z); got != want {
			t.Errorf("%s of both is %d, want %d", name, got, want)
		}
	}
}

// Rule: a list is counted once, by its length, with what was out when it was posted;
// completions by the poll that took them.
func TestListsAndPollsAreCountedByLength(t *testing.T) {
	onlySoft(t, "a device completes when it likes, and its completions come in other polls")
	a, b := pair(t, reactor.Config{Stepped: true}, reactor.QueueConfig{SendDepth: 32, SignalEvery: 1})
	defer b.close(t)
	defer a.close(t)
	before := a.r.Stats()
	posted := 0
	for _, n := range []int{1, 2, 3, 9, 1} {
		for range n {
			s, p := a.write(b)
			f, err := a.q.Submit(context.Background(), s, &p, reactor.Try)
			check(t, err)
			defer f.Discard()
		}
		posted += n
		for a.r.Step() || b.r.Step() {
		}
	}
	s := a.r.Stats()
	if want := (reactor.Histogram{1: 2, 2: 2, 4: 1}); s.Lists != want || s.Occupancy != want {
		t.Errorf("lists are %v and found %v out; want both to be %v", s.Lists, s.Occupancy, want)
	}
	if s.MaxOut != 9 || s.MaxBatch != 9 {
		t.Errorf("the most out was %d and the longest list %d, want 9", s.MaxOut, s.MaxBatch)
	}
	var full uint64 // polls that took something
	for i, n := range s.Polls {
		if i > 0 {
			full += n - before.Polls[i]
		}
	}
	if full != 5 || s.Polls[0] == before.Polls[0] {
		t.Errorf("polls are %v after %v, want 5 more that took something, and some that did not, for %d completions", s.Polls, before.Polls, posted)
	}
}

// Rule: every list is counted with its length and with what was out, and every request is
// recorded, whoever posted it: also who takes the turn with his request in his hand.
func TestLoneTransfersAreSeenToo(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{Recorder: 64})
	defer b.close(t)
	defer a.close(t)
	one := a.transfer(b, 0)
	for range 20 {
		_, err := a.q.TransferWait(bounded(t), &one)
		check(t, err)
		s, p := a.write(b)
		f, err := a.q.Submit(bounded(t), s, &p, reactor.Wait)
		await(t, f, err)
	}
	s := a.r.Stats()
	if s.Doorbells == 0 || s.Lists.Count() != s.Doorbells || s.Occupancy.Count() != s.Doorbells {
		t.Errorf("%d doorbells, lists counted: %v, occupancy: %v", s.Doorbells, s.Lists, s.Occupancy)
	}
	all := a.q.Recorded()
	for _, r := range all {
		if r.Submitted.IsZero() || r.Posted.IsZero() || r.Ended.IsZero() || !r.Signaled {
			t.Errorf("recorded: %v, want all of its times", r)
		}
	}
	if len(all) != 40 {
		t.Errorf("%d requests recorded, want 40", len(all))
	}
}

// Rule: who waits for room in a send queue is counted with how long he waited, whether
// he got it or gave up; who finds room is not.
func TestWaitsForRoomAreCounted(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 1, RecvDepth: 4})
	defer b.close(t)
	defer a.close(t)
	f := a.stray(t, reactor.Send{})
	if s := a.r.Stats(); s.Stalls != (reactor.Histogram{}) || s.Stalled != 0 {
		t.Fatalf("%v waits, %v in all, before anybody waited", s.Stalls, s.Stalled)
	}
	_, sge := a.bytes(0, 8)
	post := func(ctx context.Context) (reactor.Future, error) {
		return a.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.Wait)
	}
	const wait = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if _, err := post(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a post to a full queue: %v, want the context's error", err)
	}
	s := a.r.Stats()
	if s.Stalls.Count() != 1 || s.MaxStall < wait || s.Stalled != s.MaxStall {
		t.Fatalf("%v waits, %v in all, the longest %v; want one of at least %v", s.Stalls, s.Stalled, s.MaxStall, wait)
	}
	from, to := time.Duration(0), time.Duration(0)
	for i, n := range s.Stalls {
		if n > 0 {
			lo, hi := s.Stalls.Bounds(i)
			from, to = time.Duration(lo)*time.Microsecond, time.Duration(hi+1)*time.Microsecond
		}
	}
	if s.MaxStall < from || s.MaxStall >= to {
		t.Errorf("a wait of %v was counted from %v to %v", s.MaxStall, from, to)
	}
	got := make(chan reactor.Future)
	go func() {
		f, err := post(bounded(t))
		try(t, err)
		got <- f
	}()
	box := make(inbox, 2)
	for range 2 { // the first gives the peer's end of the stray, whose end gives room
		_, to := b.bytes(0, 8)
		check(t, b.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{to}, reactor.Wait))
	}
	await(t, f, nil)
	await(t, comes(t, "the post that waited", got), nil)
	if s := a.r.Stats(); s.Stalls.Count() > 2 || s.Stalled < s.MaxStall {
		t.Errorf("%v waits, %v in all, the longest %v; want two at most", s.Stalls, s.Stalled, s.MaxStall)
	}
}
