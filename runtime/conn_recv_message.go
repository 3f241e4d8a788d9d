package runtime

import (
	"cmp"
	"errors"
	"slices"
)

// Message is a received message. Its data lies in a receive buffer of the connection. The caller
// owns this buffer until Release. A connection has Options.RecvCredits buffers for messages. While
// the caller holds all of them, the peer cannot send messages.
type Message struct {
	Data []byte // nil for a WRITE with immediate data
	// Imm is the immediate data, in host byte order. It is valid if HasImm is true. Written is the
	// number of bytes that a WRITE with immediate data wrote; for a SEND it is 0.
	Imm     uint32
	HasImm  bool
	Written int
	// Invalidated is the window that the peer invalidated with this message, or nil.
	Invalidated *Window

	slot   *recvSlot
	number uint64
	answer bool // the message belongs to a Call: nothing else may receive it
}

// Release gives the buffer back to the connection. The connection posts the receive again and
// returns the credit to the peer. The caller must not use Data afterwards. If the message was
// released before, Release returns ErrMessage. Release blocks only to free a large buffer of a
// connection that is ending or gone (see Buffer.Release).
func (m Message) Release() error {
	s := m.slot
	if s == nil || !s.state.CompareAndSwap(m.number, m.number+1) {
		return ErrMessage
	}
	if err := s.postLater(); err != nil { // the connection is ending or gone
		return s.buf.Release()
	}
	s.c.returnCredits(1)
	return nil
}

// ReleaseMany releases messages as Release does, and returns the credits of messages of one
// connection that follow each other together. It releases all of them even if it returns an error,
// which joins their errors.
func ReleaseMany(ms []Message) error {
	var errs error
	for len(ms) > 0 {
		c, n, back := ms[0].conn(), 0, uint32(0)
		for ; n < len(ms) && ms[n].conn() == c; n++ {
			s := ms[n].slot
			if s == nil || !s.state.CompareAndSwap(ms[n].number, ms[n].number+1) {
				errs = errors.Join(errs, ErrMessage)
			} else if s.postLater() == nil {
				back++
			} else { // the connection is ending or gone
				errs = errors.Join(errs, s.buf.Release())
			}
		}
		if ms = ms[n:]; back > 0 {
			c.returnCredits(back)
		}
	}
	return errs
}

// conn returns the connection of m, or nil for the zero Message.
func (m Message) conn() *Conn {
	if m.slot == nil {
		return nil
	}
	return m.slot.c
}

// handOut makes the Message of slot i, which the caller has taken from c.arrived or c.returned.
func (c *Conn) handOut(i uint32) Message {
	s := &c.recvs[i]
	number := s.state.Add(1) // now odd, which means held
	m := Message{slot: s, number: number, Imm: s.imm, HasImm: s.with, Invalidated: s.shut}
	if s.data {
		m.Data = s.buf.Bytes()[frameSize : frameSize+s.n]
	} else {
		m.Written = s.n
	}
	return m
}

// disposeMessage takes back a message whose future was discarded. The message keeps its place in
// the order of arrival. The answer of a Call that was given up is released.
func disposeMessage(m Message, err error) {
	s := m.slot
	if err != nil || s == nil || !s.state.CompareAndSwap(m.number, m.number+1) {
		return
	}
	c := s.c
	if m.answer {
		if s.postLater() != nil { // the connection is ending or gone
			s.free()
			return
		}
		c.returnCredits(1)
		return
	}
	c.line.Add(1)
	c.backIn.Push(s)
	c.sh.r.Schedule(&c.matchTask, false)
	// If the connection is gone, there may be no further call of takeBack, so free the slot here.
	// But takeBack may have taken the slot from backIn already. If the slot was then handed out
	// again, the CAS fails. If takeBack has freed the slot, the call of free does nothing.
	if isGone(c) && s.state.CompareAndSwap(m.number+1, m.number+3) {
		s.free()
	}
}

// takeBack moves the messages of discarded futures from c.backIn to c.returned, in the order of
// arrival. If the connection is gone, it frees their slots instead. Holder only.
func (c *Conn) takeBack() {
	for s := c.backIn.TakeAll(); s != nil; {
		next := s.hook.Unlink()
		if isGone(c) {
			c.line.Add(-1)
			s.free()
		} else {
			at, _ := slices.BinarySearchFunc(c.returned, s.nth, func(i uint32, nth uint64) int { return cmp.Compare(c.recvs[i].nth, nth) })
			c.returned = slices.Insert(c.returned, at, uint32(s.i))
		}
		s = next
	}
}

// hasMessages reports whether a message waits for a receiver. Holder only.
func (c *Conn) hasMessages() bool {
	return len(c.returned) > 0 || c.arrived != nil && !c.arrived.Empty()
}

// nextMessage takes the oldest message that waits for a receiver, and returns its slot. Returned
// messages are older than all in c.arrived. Holder only.
func (c *Conn) nextMessage() (i uint32, ok bool) {
	if len(c.returned) == 0 {
		return c.arrived.Pop()
	}
	i = c.returned[0]
	c.returned = slices.Delete(c.returned, 0, 1)
	c.line.Add(-1)
	return i, true
}

// freeMessages frees the slots of the messages that no receiver has got. Holder only.
func (c *Conn) freeMessages() {
	for c.hasMessages() {
		if i, ok := c.nextMessage(); ok { // false if a receiver has taken the last message meanwhile
			c.recvs[i].free()
		}
	}
}
