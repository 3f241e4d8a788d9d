package reactor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// slowly() calls newWatchedQueue for a queue with the given Recorder and with SignalEvery 4.
func slowly(t *testing.T, recorder int) *watched {
	return newWatchedQueue(t, reactor.PeerLimit{}, reactor.QueueConfig{SendDepth: 8, RecvDepth: 4, SignalEvery: 4, Recorder: recorder})
}

// submit submits a WRITE of n bytes and runs no pass.
func (w *watched) submit(t *testing.T, n int) {
	t.Helper()
	addr, key := w.peer.remote(0)
	_, sge := w.bytes(0, n)
	f := must.Get(w.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}, &reactor.Payload{SGEs: []verbs.SGE{sge}}, reactor.NonBlock))(t)
	f.Discard()
}

// Rule: the record of a request has the times at which the request was submitted, was posted and
// ended. An unsignaled request ends when the completion of a later request is polled.
func TestRecordsHaveTheirTimes(t *testing.T) {
	w := slowly(t, 16)
	at := func(d time.Duration) time.Time { return watchedFrom.Add(d) }
	w.deaf = true
	w.submit(t, 1)
	w.now = at(1 * time.Second)
	w.submit(t, 2)
	w.now = at(2 * time.Second)
	w.settle()
	var d reactor.Transfer
	d.Opcode = verbs.WRRDMARead
	_, d.Local = w.bytes(0, 3)
	d.Remote, d.RKey = w.peer.remote(0)
	w.now = at(3 * time.Second)
	f := must.Get(w.q.Transfer(bounded(t), &d, reactor.NonBlock))(t)
	f.Discard()
	w.now = at(4 * time.Second)
	w.settle()
	type row struct {
		op                       verbs.WROpcode
		bytes                    uint32
		signaled                 bool
		submitted, posted, ended time.Time
	}
	rows := func() (all []row) {
		for _, r := range w.q.Recorded() {
			all = append(all, row{r.Opcode, r.Bytes, r.Signaled, r.Submitted, r.Posted, r.Ended})
		}
		return all
	}
	want := []row{
		{verbs.WRRDMAWrite, 1, false, at(0), at(2 * time.Second), time.Time{}},
		{verbs.WRRDMAWrite, 2, true, at(1 * time.Second), at(2 * time.Second), time.Time{}},
		{verbs.WRRDMARead, 3, true, at(3 * time.Second), at(4 * time.Second), time.Time{}},
	}
	compare := func(when string) {
		t.Helper()
		got := rows()
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("%s: recorded %+v, want %+v", when, got, want)
			}
		}
	}
	compare("while the READ and the WRITEs are outstanding")
	w.now = at(5 * time.Second)
	w.deaf = false
	w.settle()
	for i := range want {
		want[i].ended = at(5 * time.Second)
	}
	compare("after their completions were polled")
	for _, r := range w.q.Recorded() {
		if s, ok := r.Status(); !ok || s != verbs.WCSuccess || r.Err != nil || r.WRID == 0 {
			t.Errorf("%v: Status returned %v, %t; want success, true, and a record with a wr_id and no error", r, s, ok)
		}
	}
	if line, wants := w.q.Recorded()[1].String(), "RDMA_WRITE of 2 bytes, wr_id 0x"; !strings.HasPrefix(line, wants) || !strings.HasSuffix(line, " posted 1s later, ended 3s later: ok") {
		t.Errorf("String returned %q, want the prefix %q, and the suffix \" posted 1s later, ended 3s later: ok\"", line, wants)
	}
}

// Rule: with QueueConfig.Recorder = n the recorder keeps at least the last n ended requests, in
// order, and drops older ones.
func TestTheRecorderKeepsTheLastRequests(t *testing.T) {
	const keep = 10
	w := slowly(t, keep)
	const slots = 16 + 4 // sends and the marker, in two chunks, and receives
	for i := 1; i <= 3*(keep+slots)+5; i++ {
		w.submit(t, i)
		w.settle()
		all := w.q.Recorded()
		if len(all) != min(i, keep+slots) {
			t.Fatalf("after %d requests there are %d records, want %d", i, len(all), min(i, keep+slots))
		}
		for k, r := range all {
			if want := uint32(i - len(all) + 1 + k); r.Bytes != want || r.Ended.IsZero() {
				t.Fatalf("after %d requests record %d is %v, want an ended request of %d bytes", i, k, r, want)
			}
		}
	}
	plain := newWatched(t, reactor.PeerLimit{})
	plain.post(t)
	if got := plain.q.Recorded(); got != nil {
		t.Errorf("Recorded of a queue without a recorder returned %v, want nil", got)
	}
}

// Rule: receives are recorded, too. Recorded returns outstanding receives after the sends, in
// posting order. The record of an ended receive has the length of the message.
func TestReceivesAreRecorded(t *testing.T) {
	w := slowly(t, 4)
	_, sge := w.bytes(0, 64)
	box := make(tally, 4)
	for i := range 3 {
		w.now = watchedFrom.Add(time.Duration(i) * time.Second)
		sge.Length = uint32(64 - i)
		must.Do(t, w.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{sge}, reactor.Block))
		w.settle()
	}
	w.now = watchedFrom.Add(time.Minute)
	_, from := w.peer.bytes(0, 5)
	f := must.Get(w.peer.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend}, &reactor.Payload{SGEs: []verbs.SGE{from}}, reactor.NonBlock))(t)
	defer f.Discard()
	w.settle()
	w.deaf = true
	w.submit(t, 1)
	w.settle()
	// This receive takes the slot of the receive that has ended.
	must.Do(t, w.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{sge}, reactor.Block))
	w.settle()
	all := w.q.Recorded()
	var got []uint32
	for _, r := range all {
		got = append(got, r.Bytes)
	}
	want := []uint32{5, 1, 63, 62, 62}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("the recorded lengths are %v, want %v: the ended receive, the outstanding send, the outstanding receives", got, want)
		}
	}
	if r := all[0]; r.Kind != reactor.KindRecv || !r.Posted.Equal(watchedFrom) || !r.Ended.Equal(watchedFrom.Add(time.Minute)) {
		t.Errorf("the first record is %v, want a receive that was posted at the start and ended a minute later", r)
	}
	if line := all[0].String(); !strings.HasPrefix(line, "RECV of 5 bytes") {
		t.Errorf("String returned %q, want the prefix \"RECV of 5 bytes\"", line)
	}
}

// Rule: two requests that end in the same pass can have different end times. For a request that
// the reactor refuses, the end time is read before the pass posts. For a posted request, it is read
// after the pass has polled the completion.
func TestRefusedAndPolledInOneTurn(t *testing.T) {
	onlySoft(t, "a device completes an operation later than the pass that posts it")
	w := clock{watchedFrom}
	a, b, h := hookedPair(t, reactor.Config{Stepped: true, Now: w.Now}, reactor.QueueConfig{Recorder: 4})
	defer b.close(t)
	h.set(func(inner verbs.Context, turn *verbs.IOBatch) error {
		w.now = w.now.Add(time.Second)
		return inner.Execute(turn)
	})
	sealed := a.another(t, reactor.QueueConfig{Recorder: 4})
	var before time.Time
	a.do(t, func() {
		for _, e := range []*end{sealed, a} {
			s, p := e.write(b)
			f := must.Get(e.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
			f.Discard()
		}
		sealed.q.Fail(errOver)
		sealed.q.Seal()
		before = w.now
		a.r.Flush()
	})
	if all := sealed.q.Recorded(); len(all) != 1 || !all[0].Ended.Equal(before) || !all[0].Posted.IsZero() {
		t.Errorf("a request was refused at %v: the records are %v, want one with this end time and no posting time", before, all)
	}
	if all := a.q.Recorded(); len(all) != 1 || !all[0].Posted.Equal(before) || !all[0].Ended.Equal(before.Add(time.Second)) {
		t.Errorf("a request was posted at %v and its completion polled a second later: the records are %v, want one with these times", before, all)
	}
	sealed.release(t, errOver)
	a.close(t)
}

// Rule: the record of a refused request has the error of the request. If the device refused the request, the
// posting time is that of the attempt. If the request was refused because its queue was released,
// there is no posting time. Recorded works after Release and Close.
func TestRefusedRequestsAreRecorded(t *testing.T) {
	a, b, f := faultyPair(t, reactor.QueueConfig{SignalEvery: 32, Recorder: 8})
	defer b.close(t)
	f.cutAt.Store(1)
	for i, fut := range a.batch(t, b, 3) {
		if _, err := fut.Await(bounded(t)); (err == nil) != (i == 0) {
			t.Fatalf("request %d of the list ended with %v, want success of request 0 only, because the device accepted only this request", i, err)
		}
	}
	a.do(t, func() {
		s, p := a.write(b)
		late := must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
		late.Discard()
		must.Do(t, a.q.QP().Close())
		must.Do(t, a.q.Release(errOver))
	})
	a.closeRest(t)
	refused, ok, markers := 0, 0, 0
	all := a.q.Recorded()
	for _, r := range all {
		_, told := r.Status()
		cut, over := &verbs.OpError{}, errors.Is(r.Err, errOver)
		switch {
		case r.Kind == reactor.KindMarker:
			markers++
			if !r.Submitted.IsZero() || r.Posted.IsZero() || !r.Signaled || r.Opcode != verbs.WRRDMAWrite {
				t.Errorf("the marker is recorded as %v, want a signaled WRITE with a posting time and no submission time", r)
			}
		case r.Err == nil:
			ok++
		case over && (!r.Posted.IsZero() || told), errors.As(r.Err, &cut) && (r.Posted.IsZero() || told), r.Ended.Before(r.Posted), r.Submitted.IsZero():
			t.Errorf("a refused request is recorded as %v, and Status returned ok = %t; want ok = false, and a posting time only if the device refused the request", r, told)
		default:
			refused++
		}
	}
	if ok != 1 || markers != 1 || refused != 3 {
		t.Errorf("the records have %d successful requests, %d refused ones and %d markers, want 1, 3 and 1: %v", ok, refused, markers, all)
	}
}

// Rule: when a queue fails, the recorder keeps the failed request and the last requests before it,
// however many requests are flushed afterwards.
func TestTheFlushPushesNoCauseOut(t *testing.T) {
	const depth = 32
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: depth, RecvDepth: depth, Recorder: 2})
	defer b.close(t)
	box := make(tally, depth)
	_, sge := a.bytes(0, 8)
	for range depth {
		must.Do(t, a.q.PostRecv(&reactor.Recv{Sink: box}, []verbs.SGE{sge}, reactor.Block))
	}
	for _, f := range a.batch(t, b, 2) {
		await(t, f, nil)
	}
	var fs []reactor.Future
	a.do(t, func() {
		for i := range depth {
			s, p := a.write(b)
			if i == 0 {
				s.RKey ^= 0xffff
			}
			f := must.Get(a.q.Submit(context.Background(), s, &p, reactor.NonBlock))(t)
			fs = append(fs, f)
		}
	})
	for _, f := range fs {
		_, _ = f.Await(bounded(t))
	}
	a.closeQueue(t)
	count := map[verbs.WCStatus]int{}
	all := a.q.Recorded()
	for i, r := range all {
		s, ok := r.Status()
		if !ok {
			t.Errorf("the record %v has no status, want one", r)
		}
		if count[s]++; s == verbs.WCRemAccessErr && i != 2 {
			t.Errorf("the failed request is record %d, want record 2, after the two successful requests", i)
		}
	}
	if count[verbs.WCSuccess] != 2 || count[verbs.WCRemAccessErr] != 1 || count[verbs.WCWRFlushErr] != 2*depth-1 {
		t.Errorf("the recorded statuses are %v, want 2 of success, 1 of REM_ACCESS_ERR and %d of WR_FLUSH_ERR", count, 2*depth-1)
	}
	a.closeRest(t)
}

// Rule: Recorded may be called while other goroutines submit and drive. In each of its results, the
// times of every record are in order, and ended requests come before outstanding ones.
func TestTheRecorderIsReadWhileItRuns(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 16, Recorder: 32})
	defer b.close(t)
	defer a.close(t)
	ops := 2000
	if onDevice() {
		ops = 100
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			s, p := a.write(b)
			lone := a.transfer(b, 0)
			for range ops {
				if g%2 == 0 {
					_, err := a.q.TransferWait(context.Background(), &lone)
					try(t, err)
					continue
				}
				f, err := a.q.Submit(context.Background(), s, &p, reactor.NoWakeup)
				if err == nil {
					_, err = f.Await(context.Background())
				}
				try(t, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		out := false
		for _, r := range a.q.Recorded() {
			bad := r.Posted.Before(r.Submitted) || r.Submitted.IsZero() || r.Bytes != 8
			if r.Ended.IsZero() {
				out = true
			} else {
				bad = bad || out || r.Ended.Before(r.Posted)
			}
			if bad {
				t.Errorf("wrong record %v (an outstanding request seen so far = %t); want ordered times, 8 bytes, and ended requests before outstanding requests", r, out)
				running = false
				break
			}
		}
	}
	<-done
}
