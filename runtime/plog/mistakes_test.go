package plog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Rule: a program gives a peer the lanes that are the peer's: it gets no other.
func TestServeGivesALane(t *testing.T) {
	host := openRuntime(t)
	r := fileRegion(t, host, filepath.Join(t.TempDir(), "log"), 1<<16)
	l := must.Get(Create(r, Config{Lanes: 3}))(t)
	ln := must.Get(host.Listen(":0"))(t)
	rt := openRuntime(t)
	served := make(chan error, 1)
	go func() {
		c, err := ln.Accept(testContext(t))
		if err == nil {
			err = l.Serve(testContext(t), c, 1)
		}
		served <- err
	}()
	c := dial(t, rt, &server{addr: ln.Addr().String()})
	for _, lane := range []int{0, 2} {
		if _, err := Join(testContext(t), rt, c, lane); !errors.Is(err, ErrLane) {
			t.Errorf("a peer that has lane 1 joins lane %d: %v, want ErrLane", lane, err)
		}
	}
	must.Get(must.Get(Join(testContext(t), rt, c, 1))(t).Append(testContext(t), []byte("its own")))(t)
	must.Do(t, c.Close(testContext(t)))
	if err := <-served; !errors.Is(err, verbena.ErrPeerClosed) {
		t.Errorf("Serve ended with %v", err)
	}
}

// Rule: a call with a nil context returns ErrNilContext, and changes nothing.
func TestNilContext(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 4096})
	rt := openRuntime(t)
	c := dial(t, rt, s)
	w := must.Get(Join(testContext(t), rt, c, 0))(t)
	p := must.Get(w.Start(testContext(t), []byte("record")))(t)
	var none context.Context
	for name, call := range map[string]func() error{
		"Append": func() error { _, err := w.Append(none, []byte("x")); return err },
		"Start":  func() error { _, err := w.Start(none, []byte("x")); return err },
		"Wait":   func() error { return p.Wait(none) },
		"Join":   func() error { _, err := Join(none, rt, c, 0); return err },
		"Serve":  func() error { return s.log.Serve(none, c) },
	} {
		if err := call(); !errors.Is(err, verbena.ErrNilContext) {
			t.Errorf("%s: %v, want ErrNilContext", name, err)
		}
	}
	must.Do(t, p.Wait(testContext(t)))
	if got := all(t, must.Get(s.log.Reader(0))(t)); !slices.Equal(got, []string{"record"}) {
		t.Errorf("the lane has %q", got)
	}
}

// Rule: records whose WRITE was started and whose FLUSH was not, with a context that has ended and one slot in
// the send queue, are no errors of Start; they are no burden for later records, however many there are; and
// Wait makes them persistent. Append says that it does not know.
func TestEndedContextLeavesAFullQueue(t *testing.T) {
	s := newServer(t, Config{Lanes: 1, LaneSize: 1 << 12})
	rt := openRuntime(t)
	c := must.Get(rt.DialOptions(testContext(t), s.addr, verbena.Options{SendDepth: 1}))(t)
	t.Cleanup(c.Abort)
	w := must.Get(Join(testContext(t), rt, c, 0))(t)
	r := must.Get(s.log.Reader(0))(t)
	over := make(chan struct{})
	close(over)
	ended := reactor.DoneContext(over) // it has ended since a call began: calls begin, and do not wait
	var want, got []string
	var last Pending
	for end := time.Now().Add(hang); len(want) < 150; { // more than twice the ring
		text := fmt.Sprint("record ", len(want))
		p, err := w.Start(ended, []byte(text))
		switch {
		case err == nil:
			want, last = append(want, text), p
		case w.Position()-w.head == w.log.lines(): // ask for space
			got = append(got, all(t, r)...)
			must.Do(t, r.Trim())
			w.head = must.Get(w.port.askHead(testContext(t)))(t)
		case !errors.Is(err, ended.Err()) || time.Now().After(end):
			t.Fatalf("record %d: %v", len(want), err)
		}
	}
	must.Do(t, last.Wait(testContext(t)))
	if w.unflushed != w.at {
		t.Errorf("after Wait the records from %d to %d are not flushed", w.unflushed, w.at)
	}
	for {
		_, err := w.Append(ended, []byte("unknown"))
		if !errors.Is(err, ended.Err()) {
			t.Fatalf("Append: %v, want %v", err, ended.Err())
		}
		if errors.Is(err, ErrUnknown) {
			want = append(want, "unknown")
			break
		}
	}
	must.Get(w.Append(testContext(t), []byte("the last")))(t)
	if got = append(got, all(t, r)...); !slices.Equal(got, append(want, "the last")) {
		t.Errorf("the reader has %q, want %q", got, want)
	}
}

// Rule: numbers of a hostile file do not overflow.
func TestLastNumbersOfAFile(t *testing.T) {
	for name, c := range map[string]struct {
		state
		open, claim error
	}{
		"the last position":      {state{sequence: 2, head: maxPosition, claimed: maxPosition}, nil, nil},
		"a position too many":    {state{sequence: 2, head: maxPosition + 1}, ErrCorrupt, nil},
		"the largest generation": {state{sequence: 2, generation: 1<<64 - 1}, nil, nil},
		"the last change":        {state{sequence: maxSequence}, nil, ErrFull},
		"a change too many":      {state{sequence: maxSequence + 2}, ErrCorrupt, nil},
		"the largest of all":     {state{sequence: 1<<64 - 1}, ErrCorrupt, nil},
		"the largest, and even":  {state{sequence: 1<<64 - 2}, ErrCorrupt, nil},
	} {
		m := make(image, 1<<13)
		l := must.Get(create(m, Config{Lanes: 1, LaneSize: 1 << 12}, 7))(t)
		clear(m[headerSize:][:slots*slotSize])
		c.encode(m[l.slot(0, int(c.sequence%slots)):], l.id)
		l, err := open(m)
		if !errors.Is(err, c.open) || (err == nil) != (c.open == nil) {
			t.Errorf("%s: open: %v, want %v", name, err, c.open)
		}
		if err != nil {
			continue
		}
		if _, err := l.claim(0, 9); !errors.Is(err, c.claim) || (err == nil) != (c.claim == nil) {
			t.Errorf("%s: claim: %v, want %v", name, err, c.claim)
		}
		if c.claim == nil {
			if again := must.Get(open(m))(t); again.lanes[0].state != l.lanes[0].state {
				t.Errorf("%s: opened again, the lane is %+v, want %+v", name, again.lanes[0].state, l.lanes[0].state)
			}
		}
	}
}
