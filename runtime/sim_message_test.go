package runtime

import (
	"bytes"
	"errors"
	"time"
)

// The messages that come to an end of a managed connection.

// simHeld is a message that the application has not released yet.
type simHeld struct {
	m     Message
	want  simMsg
	until time.Duration
}

// takeMessages takes what was received, in the order of asking.
func (e *simEnd) takeMessages() {
	for len(e.wants) > 0 {
		m, err, ok := e.wants[0].Poll()
		if !ok {
			break
		}
		e.wants = e.wants[1:]
		e.message(m, err)
	}
}

// giveUpWaiting stops waiting for a message, for good or for a moment.
func (e *simEnd) giveUpWaiting() {
	w := e.w
	if n := len(e.wants); n > 0 && w.r.one(40) {
		// The newest can be given up at any time, an older one while it has no
		// message: what it would get is the next one's.
		if k := w.r.IntN(n); k == n-1 || !e.wants[k].Settled() {
			e.wants[k].Discard()
			e.wants = append(e.wants[:k], e.wants[k+1:]...)
			w.counts[opRecv][outcomeGivenUp]++
		}
	}
	if n := len(e.wants); n > 0 && w.r.one(40) {
		if m, err := e.wants[0].Await(w.ended); !errors.Is(err, w.ended.Err()) {
			e.message(m, err)
			e.wants = e.wants[1:]
		}
	}
}

func (e *simEnd) message(m Message, err error) {
	w := e.w
	w.trace.note(e.p.id, uint64(e.side), uint64(errorClass(err)), uint64(len(m.Data)), uint64(m.Imm))
	if err != nil {
		w.counts[opRecv][outcomeFailed]++
		if e.c.Err() == nil {
			w.fail("%v: end %d: no message will come (%v), but the connection is well", e.p, e.side, err)
		}
		e.sawEnd = e.sawEnd || !e.closing
		return
	}
	w.counts[opRecv][outcomeOK]++
	if e.sawEnd {
		w.fail("%v: end %d: a message after the end", e.p, e.side)
	}
	want, ok := e.in().pop()
	if !ok {
		w.fail("%v: end %d received a message that nobody sent, or one twice: %+v", e.p, e.side, m)
	}
	e.sameMessage(m, want, "when it was received")
	if err := e.shutBy(want, m.Invalidated); err != nil {
		w.fail("%v: end %d: %v", e.p, e.side, err)
	}
	until := w.now()
	if !w.r.one(3) {
		until += w.r.span(0, 2*time.Millisecond)
	}
	e.held = append(e.held, simHeld{m, want, until})
}

func (e *simEnd) sameMessage(m Message, want simMsg, when string) {
	number := e.in().received - 1
	if m.HasImm != want.with || want.with && (m.Imm != want.imm || m.Written != want.n) || !want.with && len(m.Data) != want.n {
		e.w.fail("%v: end %d, message %d, %s: immediate %t %d, %d bytes, %d written; want %+v", e.p, e.side, number, when, m.HasImm, m.Imm, len(m.Data), m.Written, want)
	}
	if !want.with && !bytes.Equal(m.Data, e.w.fill(want.n, want.seed)) {
		e.w.fail("%v: end %d, message %d, %s: other bytes than were sent", e.p, e.side, number, when)
	}
}

// releaseHeld gives messages back; while they were held nobody wrote to them.
func (e *simEnd) releaseHeld(all bool) {
	kept := e.held[:0]
	for _, h := range e.held {
		if !all && h.until > e.w.now() {
			kept = append(kept, h)
			continue
		}
		e.sameMessage(h.m, h.want, "when it was released")
		if err := h.m.Release(); err != nil {
			e.w.fail("releasing a message: %v", err)
		}
		if err := h.m.Release(); !errors.Is(err, ErrMessage) {
			e.w.fail("releasing a message twice: %v, want %v", err, ErrMessage)
		}
	}
	clear(e.held[len(kept):])
	e.held = kept
}
