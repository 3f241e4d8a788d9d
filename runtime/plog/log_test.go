package plog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: what several goroutines of several writers append is in the log, each lane in the order of the
// positions, while it is written and after the log was opened again, by another runtime.
func TestAppendReadOpenAgain(t *testing.T) {
	const lanes, goroutines, each = 3, 4, 25
	path := filepath.Join(t.TempDir(), "log")
	server := openRuntime(t)
	r := fileRegion(t, server, path, 1<<18)
	s := serve(t, server, must.Get(Create(r, Config{Lanes: lanes}))(t))
	client := openRuntime(t)
	var want [lanes]map[uint64]string
	var wg sync.WaitGroup
	for lane := range lanes {
		w := joined(t, client, s, lane)
		want[lane] = map[uint64]string{}
		var mu sync.Mutex
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					text := fmt.Sprintf("%d %d %d%s", lane, g, i, strings.Repeat(".", i*7%200))
					at, err := w.Append(testContext(t), []byte(text))
					if err != nil {
						t.Errorf("lane %d: %v", lane, err)
						return
					}
					mu.Lock()
					want[lane][at] = text
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	check := func(l *Log) {
		t.Helper()
		for lane := range lanes {
			found := must.Get(readAll(must.Get(l.Reader(lane))(t)))(t)
			if len(found) != goroutines*each || len(want[lane]) != len(found) {
				t.Errorf("lane %d has %d records, want %d", lane, len(found), goroutines*each)
			}
			last := map[string]int{}
			for _, rec := range found {
				if want[lane][rec.Position] != string(rec.Payload) {
					t.Errorf("lane %d has %q at %d, want %q", lane, rec.Payload, rec.Position, want[lane][rec.Position])
				}
				f := strings.Fields(string(rec.Payload))
				var i int
				_, _ = fmt.Sscan(strings.TrimRight(f[2], "."), &i)
				if i != last[f[1]] {
					t.Errorf("lane %d: record %d of goroutine %s, want record %d", lane, i, f[1], last[f[1]])
				}
				last[f[1]]++
			}
		}
	}
	check(s.log)
	s.stop()
	must.Do(t, r.Close())
	again := fileRegion(t, openRuntime(t), path, 1<<18)
	check(must.Get(Open(again))(t))
}

// Rule: a lane has one writer at a time, and the next one when the connection of the last has ended.
// It learns where the records of the last one end.
func TestOneWriterOfALane(t *testing.T) {
	s := newServer(t, Config{Lanes: 2, LaneSize: 4096})
	rt := openRuntime(t)
	ctx := testContext(t)
	c := dial(t, rt, s)
	w := must.Get(Join(ctx, rt, c, 1))(t)
	at := must.Get(w.Append(ctx, []byte("first")))(t)
	other := dial(t, rt, s)
	if _, err := Join(ctx, rt, other, 1); !errors.Is(err, ErrLaneHeld) {
		t.Errorf("a second writer of a lane: %v, want ErrLaneHeld", err)
	}
	for _, lane := range []int{2, MaxLanes - 1} {
		if _, err := Join(ctx, rt, other, lane); !errors.Is(err, ErrLane) {
			t.Errorf("a writer of lane %d of 2: %v, want ErrLane", lane, err)
		}
	}
	for _, lane := range []int{-1, MaxLanes} {
		if _, err := Join(ctx, rt, other, lane); !errors.Is(err, ErrLane) {
			t.Errorf("a writer of lane %d: %v, want ErrLane", lane, err)
		}
	}
	must.Do(t, c.Close(ctx))
	s.ended(t, 1)
	next := must.Get(Join(ctx, rt, other, 1))(t)
	if next.Position() != at+1 {
		t.Errorf("the next writer begins at %d, want %d", next.Position(), at+1)
	}
	if _, err := w.Append(ctx, []byte("late")); err == nil {
		t.Error("the last writer appends after its connection was closed")
	}
	must.Get(next.Append(ctx, []byte("second")))(t)
	if got := all(t, must.Get(s.log.Reader(1))(t)); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("the lane has %q", got)
	}
}

// Rule: a full lane refuses records until the server trims. Then its ring is used again, for any number
// of laps and for records of all sizes, also where they pass the ring's end.
func TestRingIsUsedAgain(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 16 * LineSize})
	rt := openRuntime(t)
	ctx := testContext(t)
	w := joined(t, rt, s, 0)
	if _, err := w.Append(ctx, make([]byte, w.MaxRecord()+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a record of %d bytes: %v, want ErrTooLarge", w.MaxRecord()+1, err)
	}
	r := must.Get(s.log.Reader(0))(t)
	full := 0
	var want []string
	for i := range 400 {
		text := fmt.Sprintf("%d%s", i, strings.Repeat("x", (i*37)%(w.MaxRecord()-3)))
		_, err := w.Append(ctx, []byte(text))
		if errors.Is(err, ErrFull) {
			full++
			if got := all(t, r); !slices.Equal(got, want) {
				t.Fatalf("record %d: the lane has %q, want %q", i, got, want)
			}
			want = want[:0]
			must.Do(t, r.Trim())
			must.Do(t, r.Trim()) // nothing more to free
			_, err = w.Append(ctx, []byte(text))
		}
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		want = append(want, text)
	}
	if w.Position() < 20*16 || full < 20 {
		t.Errorf("the lane was full %d times up to position %d: too little to show anything", full, w.Position())
	}
	slow := must.Get(s.log.Reader(0))(t)
	_ = all(t, r)
	must.Do(t, r.Trim())
	if _, _, err := slow.Next(); !errors.Is(err, ErrTrimmed) {
		t.Errorf("a reader whose records were freed: %v, want ErrTrimmed", err)
	}
}

// Rule: a record that was started is acknowledged by Wait, together with those before it, and a full
// send queue is no reason to lose one.
func TestStartManyWaitForTheLast(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 1 << 17})
	rt := openRuntime(t)
	ctx := testContext(t)
	w := joined(t, rt, s, 0)
	var last Pending
	const n = 500
	for i := range n {
		p := must.Get(w.Start(ctx, fmt.Appendf(nil, "%d", i)))(t)
		if i > 0 {
			last.Discard()
		}
		last = p
	}
	must.Do(t, last.Wait(ctx))
	if got := all(t, must.Get(s.log.Reader(0))(t)); len(got) != n || got[n-1] != fmt.Sprint(n-1) {
		t.Errorf("the lane has %d records, want %d", len(got), n)
	}
}

// Rule: a writer reaches its own ring, and nothing else of the file: neither another lane, nor its
// lane's state, nor by reading.
func TestWriterReachesItsRingAlone(t *testing.T) {
	s := newServer(t, Config{Lanes: 2, LaneSize: 4096})
	rt := openRuntime(t)
	ctx := testContext(t)
	buf := must.Get(rt.Alloc(8))(t)
	defer buf.Release()
	ends := 0
	for name, at := range map[string]int64{"lane 0": -8, "beyond the file": 4096, "the header": -3*4096 + 8} {
		w := joined(t, rt, s, 1)
		p := w.port.(*connPort)
		off := p.windows[0]
		off.Addr = uint64(int64(off.Addr) + at)
		off.Length = 8
		before := slices.Clone(s.log.m.Bytes())
		_, err := p.conn.Do(ctx, new(verbena.WriteOp(buf.Slice(), off)))
		if wc, ok := errors.AsType[*verbs.WCError](err); !ok || wc.Status != verbs.WCRemAccessErr {
			t.Errorf("%s: a WRITE ended with %v, want REM_ACCESS_ERR", name, err)
		}
		ends++
		s.ended(t, ends)
		if !slices.Equal(before, s.log.m.Bytes()) {
			t.Errorf("%s: a WRITE changed the file", name)
		}
	}
	// Keys are not secret: on a real device that of the whole file is near that of a window.
	file := must.Get(s.log.region.Remote(0, 8))(t)
	file.Access |= verbs.AccessRemoteWrite
	conn := joined(t, rt, s, 1).port.(*connPort).conn
	before := slices.Clone(s.log.m.Bytes())
	if _, err := conn.Do(ctx, new(verbena.WriteOp(buf.Slice(), file))); err == nil {
		t.Error("a writer that knows the file's key writes by it")
	}
	if !slices.Equal(before, s.log.m.Bytes()) {
		t.Error("a writer that knows the file's key has changed the file")
	}
	s.ended(t, ends+1)
	w := joined(t, rt, s, 1)
	p := w.port.(*connPort)
	p.windows[0].Access |= verbs.AccessRemoteRead // as a peer would who forges the descriptor
	_, err := p.conn.Do(ctx, new(verbena.ReadOp(buf.Slice(), must.Get(p.at(0, 8))(t))))
	if wc, ok := errors.AsType[*verbs.WCError](err); !ok || wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a writer that reads its ring: %v, want REM_ACCESS_ERR", err)
	}
}

// Rule: when Serve has returned, its writer reaches the ring no more, although the connection is still
// there; and the lane is free.
func TestServeEndsTheAccess(t *testing.T) {
	host := openRuntime(t)
	r := fileRegion(t, host, filepath.Join(t.TempDir(), "log"), 1<<16)
	l := must.Get(Create(r, Config{Lanes: 1}))(t)
	ln := must.Get(host.Listen(":0"))(t)
	rt := openRuntime(t)
	ctx, cancel := context.WithCancel(testContext(t))
	served := make(chan error, 1)
	go func() {
		c, err := ln.Accept(ctx)
		if err == nil {
			err = l.Serve(ctx, c)
		}
		served <- err
	}()
	w := joined(t, rt, &server{addr: ln.Addr().String()}, 0)
	must.Get(w.Append(ctx, []byte("served")))(t)
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve ended with %v, want context.Canceled", err)
	}
	_, err := w.Append(testContext(t), []byte("not served"))
	// The WRITE is refused, and the FLUSH behind it has its error as the cause.
	if _, ok := errors.AsType[*verbs.WCError](err); !ok || !strings.Contains(err.Error(), "REM_ACCESS_ERR") {
		t.Errorf("an append after Serve has returned: %v, want REM_ACCESS_ERR", err)
	}
	if s, err := l.claim(0, 9); err != nil || s.claimed != 1 {
		t.Errorf("the next writer begins at %d, %v; want 1", s.claimed, err)
	}
}

// halfway is a port that starts some of the requests, and fails for the rest.
type halfway struct {
	port
	start int
}

var errHalfway = errors.New("half-way")

func (h *halfway) post(ctx context.Context, writes []write, flushes []span) (int, waiter, error) {
	if h.start < 0 || h.start >= len(writes)+len(flushes) {
		return h.port.post(ctx, writes, flushes)
	}
	n := min(h.start, len(writes))
	if _, done, err := h.port.post(ctx, writes[:n], flushes[:h.start-n]); err == nil {
		done.discard()
	}
	return h.start, nil, errHalfway
}

// Rule: if an append is started only in part, the next one continues behind what is there, and its
// FLUSHes cover that, also where the ring ends. Start returns an error only if the record was not
// started; otherwise Wait makes it persistent.
func TestStartedHalfWay(t *testing.T) {
	for before := range uint64(4) { // records of one line in front
		for n := range 2 * maxSteps {
			start, waits := n/2, n%2 == 1
			g := Config{Lanes: 1, LaneSize: 8 * LineSize}
			w := newWorld(&odometer{}, g, 600, 1, nil)
			if why := attempt(func() {
				w.create(g, 7)
				w.claim(0)
				for range 4 + before {
					w.start(0, 8)
					w.wait(0)
				}
				w.trim(0)
				f := w.writers[0]
				h := &halfway{f, start}
				f.out.port = h
				// It takes 4 lines: with 1 to 3 of them left in the ring, a pad comes first.
				long := strings.Repeat("h", w.log.MaxRecord())
				pad, writes := uint64(0), 1
				if before > 0 {
					pad, writes = 4-before, 2
				}
				p, err := f.out.Start(t.Context(), []byte(long))
				f.out.port = f
				switch {
				case err == nil:
					w.ledgers[0].entries = append(w.ledgers[0].entries, entry{position: 4 + before + pad, payload: long})
					if start < writes {
						broken("Start returned nil, and did not start the record")
					}
					if waits {
						f.pending = append(f.pending, p)
						w.wait(0)
					}
				case !errors.Is(err, errHalfway):
					broken("%v", err)
				case start >= writes:
					broken("Start returned %v, and the record was started", err)
				}
				w.start(0, 8)
				w.wait(0)
				if got := w.ledgers[0].entries; len(got) == 0 || !got[len(got)-1].sure {
					broken("the next record was not acknowledged")
				}
			}); why != "" {
				t.Errorf("with %d records in front, %d requests started, Wait called %v: %s", before, start, waits, why)
			}
		}
	}
}

// Rule: a peer that does not keep to the protocol is not served any more, and its lane is free.
func TestStrangeMessagesEndTheService(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 4096})
	rt := openRuntime(t)
	ctx := testContext(t)
	join := appendHead(nil, msgJoin, 0, 0)
	for i, messages := range [][][]byte{
		{{}}, {[]byte("GET / HTTP/1.1")}, {append(slices.Clone(join), 0)}, {appendHead(nil, msgGranted, 0, 0)},
		{appendHead(nil, msgJoin, 1, 0)}, {{msgJoin, msgVersion + 1, 0, 0, 0, 0, 0, 0}},
		{appendHead(nil, msgSpace, 0, 0)},       // of no lane
		{join, appendHead(nil, msgSpace, 0, 1)}, // by windows that it does not have
		{join, join},
	} {
		c := dial(t, rt, s)
		var answer []byte
		for _, b := range messages {
			m := must.Get(c.Call(ctx, new(verbena.SendBytesOp(b))))(t)
			answer = slices.Clone(m.Data)
			must.Do(t, m.Release())
		}
		if _, err := parseSpace(answer, s.log.layout, 0, 0); !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), "server") {
			t.Errorf("messages %d: the answer % x says %v, want a refusal with ErrMessage", i, answer, err)
		}
		if served := s.ended(t, i+1); !errors.Is(served[i], ErrMessage) {
			t.Errorf("messages %d: Serve ended with %v, want ErrMessage", i, served[i])
		}
	}
	must.Get(joined(t, rt, s, 0).Append(ctx, []byte("served")))(t)
}

// failing is a medium whose disk fails.
type failing struct {
	image
	err error
}

func (f *failing) Sync(int, int) error { return f.err }

// Rule: when bytes could not be made persistent, the log refuses everything that would need it, even
// if the disk works again: what the system has dropped is not written by a second attempt.
func TestFailedDiskFailsTheLog(t *testing.T) {
	m := &failing{image: make(image, 1<<16)}
	disk := errors.New("disk")
	m.err = disk
	if _, err := create(m, Config{Lanes: 2}, 6); !errors.Is(err, disk) {
		t.Errorf("Create on a failed disk: %v", err)
	}
	l := must.Get(create(&failing{image: m.image}, Config{Lanes: 2}, 5))(t)
	l.m = m
	for range 2 {
		if _, err := l.claim(0, 9); !errors.Is(err, ErrFailed) || !errors.Is(err, disk) {
			t.Errorf("claim on a failed disk: %v, want ErrFailed and its cause", err)
		}
		m.err = nil // the disk works again
	}
	if _, err := l.claim(1, 9); !errors.Is(err, ErrFailed) {
		t.Errorf("claim of another lane of a failed log: %v, want ErrFailed", err)
	}
	if err := l.change(1, l.lanes[1].state); !errors.Is(err, ErrFailed) {
		t.Errorf("change of a failed log: %v, want ErrFailed", err)
	}
}

// Rule: a log's geometry fits its region, and stands in its header.
func TestGeometry(t *testing.T) {
	for _, c := range []struct {
		Config
		size int
		want error
	}{
		{Config{}, 1 << 16, nil}, {Config{Lanes: 1, LaneSize: 2 * LineSize}, 4096 + 2*LineSize, nil},
		{Config{}, 4096 + 4*2*LineSize, nil}, {Config{}, 4096 + 4*2*LineSize - 1, ErrGeometry}, {Config{}, 64, ErrGeometry},
		{Config{Lanes: -1}, 1 << 16, ErrGeometry}, {Config{Lanes: MaxLanes + 1}, 1 << 20, ErrGeometry},
		{Config{LaneSize: 100}, 1 << 16, ErrGeometry}, {Config{LaneSize: -64}, 1 << 16, ErrGeometry},
		{Config{LaneSize: MaxLaneSize + LineSize}, 1 << 16, ErrGeometry}, {Config{Lanes: 1, LaneSize: 1 << 16}, 1 << 16, ErrGeometry},
		{Config{Lanes: MaxLanes, LaneSize: MaxLaneSize}, 1 << 20, ErrGeometry},
		{Config{Lanes: MaxLanes, LaneSize: 2 * LineSize}, dataOffset(MaxLanes) + MaxLanes*2*LineSize, nil},
	} {
		l, err := create(make(image, c.size), c.Config, 9)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%+v in %d bytes: %v, want %v", c.Config, c.size, err, c.want)
			continue
		}
		if err == nil && (l.Lanes() != max(c.Lanes, 1) && c.Lanes != 0 || l.size() > uint64(c.size) || l.MaxRecord() < 32) {
			t.Errorf("%+v in %d bytes: %d lanes, %d bytes, records of %d bytes", c.Config, c.size, l.Lanes(), l.size(), l.MaxRecord())
		}
	}
}
