package reactor_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: Stats.Add covers every field. If the name of a field begins with Max, the result has the
// larger of the two values. Otherwise it has their sum.
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
					t.Errorf("Add: %s[%d] is %d, want %d", name, j, got, want)
				}
			}
			continue
		}
		want := number(x) + number(y)
		if strings.HasPrefix(name, "Max") {
			want = max(number(x), number(y))
		}
		if got := number(z); got != want {
			t.Errorf("Add: %s is %d, want %d", name, got, want)
		}
	}
}

// Rule: Stats counts every list and every poll in histograms. The value of a list in Lists is its
// length. Its value in Occupancy is the number of outstanding sends of its queue, including the sends of
// the list. The value of a poll in Polls is the number of completions that the poll returned.
func TestListsAndPollsAreCountedByLength(t *testing.T) {
	onlySoft(t, "the test counts polls, but on a device sends complete at any time")
	a, b := pair(t, reactor.Config{Stepped: true}, reactor.QueueConfig{SendDepth: 32, SignalEvery: 1})
	defer b.close(t)
	defer a.close(t)
	before := a.r.Stats()
	posted := 0
	for _, n := range []int{1, 2, 3, 9, 1} {
		for range n {
			s, p := a.write(b)
			f := must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
			defer f.Discard()
		}
		posted += n
		for a.r.Step() || b.r.Step() {
		}
	}
	s := a.r.Stats()
	if want := (reactor.Histogram{1: 2, 2: 2, 4: 1}); s.Lists != want || s.Occupancy != want {
		t.Errorf("Stats.Lists is %v and Stats.Occupancy is %v, want %v for both", s.Lists, s.Occupancy, want)
	}
	if s.MaxOutstanding != 9 || s.MaxBatch != 9 {
		t.Errorf("Stats.MaxOutstanding is %d and Stats.MaxBatch is %d, want 9 for both", s.MaxOutstanding, s.MaxBatch)
	}
	var full uint64 // polls that returned completions
	for i, n := range s.Polls {
		if i > 0 {
			full += n - before.Polls[i]
		}
	}
	if full != 5 || s.Polls[0] == before.Polls[0] {
		t.Errorf("Stats.Polls is %v and was %v before, want 5 new polls with completions, and at least one new poll without, for %d completions", s.Polls, before.Polls, posted)
	}
}

// Rule: every list is counted in Lists and in Occupancy, and every request is recorded. This includes
// the requests that TransferWait posts itself.
func TestLoneTransfersAreSeenToo(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{Recorder: 64})
	defer b.close(t)
	defer a.close(t)
	one := a.transfer(b, 0)
	for range 20 {
		must.Get(a.q.TransferWait(bounded(t), &one))(t)
		s, p := a.write(b)
		f, err := a.q.Submit(bounded(t), s, &p, reactor.Block)
		await(t, f, err)
	}
	s := a.r.Stats()
	if s.Doorbells == 0 || s.Lists.Count() != s.Doorbells || s.Occupancy.Count() != s.Doorbells {
		t.Errorf("Stats counts %d doorbells, lists %v and occupancy %v; want each list counted once in each histogram", s.Doorbells, s.Lists, s.Occupancy)
	}
	all := a.q.Recorded()
	for _, r := range all {
		if r.Submitted.IsZero() || r.Posted.IsZero() || r.Ended.IsZero() || !r.Signaled {
			t.Errorf("the record is %v, want a signaled request with all three times", r)
		}
	}
	if len(all) != 40 {
		t.Errorf("there are %d records, want 40", len(all))
	}
}

// Rule: Stats counts every wait for a send slot and its duration, whether or not the submitter gets
// a slot. If a submitter finds a free slot, no wait is counted.
func TestWaitsForRoomAreCounted(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 1, RecvDepth: 4})
	defer b.close(t)
	defer a.close(t)
	f := a.stray(t, reactor.Send{})
	if s := a.r.Stats(); s.SlotWaits != (reactor.Histogram{}) || s.SlotWaitTime != 0 {
		t.Fatalf("Stats has the slot waits %v with a total time of %v, want none: no goroutine has waited for a slot", s.SlotWaits, s.SlotWaitTime)
	}
	_, sge := a.bytes(0, 8)
	post := func(ctx context.Context) (reactor.Future, error) {
		return a.q.Submit(ctx, &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.Block)
	}
	const wait = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(bounded(t))
	gaveUp := make(chan error, 1)
	go func() {
		_, err := post(ctx)
		gaveUp <- err
	}()
	oneWaits(t, a) // the submitter now waits, until cancel() is called after 20 ms or more
	<-time.After(wait)
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Fatalf("Submit to a full queue returned %v, want context.Canceled", err)
	}
	s := a.r.Stats()
	if s.SlotWaits.Count() != 1 || s.MaxSlotWait < wait || s.SlotWaitTime != s.MaxSlotWait {
		t.Fatalf("Stats has the slot waits %v with a total time of %v, and the longest took %v; want one wait of at least %v", s.SlotWaits, s.SlotWaitTime, s.MaxSlotWait, wait)
	}
	from, to := time.Duration(0), time.Duration(0)
	for i, n := range s.SlotWaits {
		if n > 0 {
			lo, hi := s.SlotWaits.Bounds(i)
			from, to = time.Duration(lo)*time.Microsecond, time.Duration(hi+1)*time.Microsecond
		}
	}
	if s.MaxSlotWait < from || s.MaxSlotWait >= to {
		t.Errorf("a wait of %v was counted in the bucket from %v to %v, want a bucket that contains it", s.MaxSlotWait, from, to)
	}
	got := make(chan reactor.Future)
	go func() {
		f, err := post(bounded(t))
		try(t, err)
		got <- f
	}()
	box := make(inbox, 2)
	for range 2 { // the first receive lets the stray send complete, which frees the slot
		_, to := b.bytes(0, 8)
		must.Do(t, b.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{to}, reactor.Block))
	}
	await(t, f, nil)
	await(t, comes(t, "the Submit that waits for a slot", got), nil)
	if s := a.r.Stats(); s.SlotWaits.Count() > 2 || s.SlotWaitTime < s.MaxSlotWait {
		t.Errorf("Stats has the slot waits %v with a total time of %v, and the longest took %v; want at most two waits, and a total not below the longest", s.SlotWaits, s.SlotWaitTime, s.MaxSlotWait)
	}
}

// Rule: every value is within the bounds of exactly one bucket, and this bucket counts the value.
func TestAHistogramHasABucketForEveryValue(t *testing.T) {
	var h reactor.Histogram
	next := uint64(0)
	for i := range h {
		from, to := h.Bounds(i)
		if from != next || to < from {
			t.Errorf("bucket %d is from %d to %d, want from %d on", i, from, to, next)
		}
		for _, v := range []uint64{from, from + (to-from)/2, to} {
			h = reactor.Histogram{}
			if h.Note(int(min(v, math.MaxInt))); h[i] != 1 || h.Count() != 1 {
				t.Errorf("%d was counted in %v, want bucket %d", v, h, i)
			}
		}
		next = to + 1
	}
	if next != 0 {
		t.Errorf("the last bucket ends before %d, want it to end at the largest uint64", next)
	}
}

// Rule: Add adds two histograms bucket by bucket. String shows the count of each bucket that is not
// empty.
func TestHistogramsAddUp(t *testing.T) {
	var a, b reactor.Histogram
	for v := range 6 {
		a.Note(v)
	}
	b.Note(5)
	b.Note(math.MaxInt)
	sum := a.Add(b)
	if sum.Count() != 8 || a.Count() != 6 {
		t.Errorf("the sum of %v and %v is %v, want 8 values in the sum, and still 6 in the first histogram", a, b, sum)
	}
	if got, want := sum.String(), "0: 1, 1: 1, 2-3: 2, 4-7: 3, from 4194304: 1"; got != want {
		t.Errorf("String returned %q, want %q", got, want)
	}
}

// Rule: for a queue with a recorder, Stuck returns every send that has been outstanding for the given
// time or longer, with its position and submission time. The oldest send comes first.
func TestStuckTellsWhatIsOutForLong(t *testing.T) {
	w := slowly(t, 1)
	at := func(n int) time.Time { return watchedFrom.Add(time.Duration(n) * time.Second) }
	w.deaf = true
	for i := range 5 {
		w.now = at(i)
		w.submit(t, i)
		w.settle()
	}
	w.now = at(10)
	got := w.r.Stuck(8 * time.Second)
	if len(got) != 3 {
		t.Fatalf("Stuck(8 s) returned %v, want the 3 sends that have been outstanding for 10, 9 and 8 s", got)
	}
	for i, s := range got {
		if s.Bytes != uint32(i) || !s.Since.Equal(at(i)) || !s.Exact || !s.Submitted.Equal(at(i)) || s.Position != i || s.Outstanding != 5 ||
			s.Queue != w.q || s.QPNum != w.q.QP().Num() || !s.Signaled || s.Opcode != verbs.WRRDMAWrite || s.Kind != reactor.KindWrite {
			t.Errorf("Stuck returned %+v, want the send of %d bytes, outstanding since %v", s, i, at(i))
		}
	}
	if line := got[1].String(); !strings.Contains(line, ", 2 of 5 out, 0 waiting for room: since ") {
		t.Errorf("String returned %q, want position 2 of 5, no waiting goroutine, and an exact time", line)
	}
	w.deaf = false
	if got := w.r.Stuck(0); len(got) != 0 {
		t.Errorf("Stuck returned %v, want none: all sends had completed, and Stuck polls first", got)
	}
}

// Rule: for a queue with a PeerLimit and no recorder, Stuck returns only the oldest send. The reported
// Since is at most an eighth of Bound after the time at which this send became the oldest, and never
// before that time.
func TestStuckKnowsWhatThePatrolKnows(t *testing.T) {
	r := testRand(t)
	for range 40 {
		bound := time.Duration(1+r.IntN(1000)) * time.Millisecond
		w := newWatched(t, reactor.PeerLimit{Bound: bound})
		for range r.IntN(5) { // sends that complete
			w.post(t)
			w.pass(time.Duration(r.Int64N(int64(bound))))
		}
		w.deaf = true
		since := w.now
		w.post(t)
		w.post(t)
		w.pass(time.Duration(r.Int64N(int64(2 * bound))))
		out := w.now.Sub(since)
		if got := w.r.Stuck(out + 1); len(got) != 0 {
			t.Fatalf("bound %v: the sends have been outstanding for %v, and Stuck of a longer time returned %v, want none", bound, out, got)
		}
		got := w.r.Stuck(out - bound/8)
		if len(got) != 1 {
			t.Fatalf("bound %v: the sends have been outstanding for %v, and Stuck of this time less an eighth of the bound returned %d sends, want 1: %v", bound, out, len(got), got)
		}
		s := got[0]
		if late := s.Since.Sub(since); late < 0 || late > bound/8 || s.Exact || s.Position != 0 || s.Outstanding != 2 || s.Kind != reactor.KindWrite ||
			s.Bytes != 8 || !s.Signaled || !s.Submitted.IsZero() {
			t.Fatalf("bound %v: two WRITEs of 8 bytes have been outstanding since %v, and Stuck returned %+v; want the older WRITE, with Exact false and Since at most an eighth of the bound later", bound, since, s)
		}
		w.ration = 1
		w.settle()
		if got := w.r.Stuck(1); len(got) != 0 {
			t.Fatalf("bound %v: Stuck returned %v, want none: neither a tick nor a call of Stuck has seen this send as the oldest", bound, got)
		}
	}
}

// Rule: for a queue with neither a recorder nor a PeerLimit, Stuck counts the time of the oldest send
// from the first call of Stuck after that send has become the oldest.
func TestStuckRemembersTheLastLook(t *testing.T) {
	w := newWatched(t, reactor.PeerLimit{})
	stuck := func(longer time.Duration) int {
		t.Helper()
		return len(w.r.Stuck(longer))
	}
	w.deaf = true
	w.post(t)
	w.pass(time.Minute)
	if n := stuck(time.Second); n != 0 {
		t.Errorf("the first call of Stuck returned %d sends, want 0: the time counts from this call", n)
	}
	w.pass(time.Minute)
	if n := stuck(time.Minute); n != 1 {
		t.Errorf("Stuck returned %d sends a minute after its first call, want 1", n)
	}
	w.post(t)
	w.ration = 1
	w.settle()
	if n := stuck(time.Second); n != 0 {
		t.Errorf("Stuck returned %d sends, want 0: the first has ended, and no call has seen the second as the oldest", n)
	}
}

// Rule: Stuck reports how many goroutines wait for a slot of a queue whose sends are stuck.
func TestStuckTellsWhoWaitsForRoom(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 1, Recorder: 1})
	defer b.close(t)
	defer a.close(t)
	f := a.stray(t, reactor.Send{})
	ctx, cancel := context.WithCancel(bounded(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s, p := a.write(b)
		_, _ = a.q.Submit(ctx, s, &p, reactor.Block)
	}()
	oneWaits(t, a)
	cancel()
	<-ended
	f.Discard()
}

// oneWaits waits until one goroutine waits for a slot of e's queue. The queue must have exactly one
// send, which is stuck.
func oneWaits(t *testing.T, e *end) {
	t.Helper()
	ctx := bounded(t)
	for waiting := 0; waiting != 1; runtime.Gosched() {
		got := e.r.Stuck(0)
		if len(got) != 1 || ctx.Err() != nil {
			t.Fatalf("Stuck returned %v, and the error of the context is %v; want one send, and one waiting goroutine before the context ends", got, ctx.Err())
		}
		waiting = got[0].Waiting
	}
}
