package runtime

import (
	"cmp"
	"errors"
	"slices"
)

// Message is a received message. Its data lies in a receive buffer of the connection, or, if it is longer
// than Options.MessageSize, in a buffer of its own. The caller owns the buffer until Release. A held message
// counts against what the peer may send (Options.RecvCredits): if the caller releases none, the peer can
// soon send none.
type Message struct {
	Data []byte // nil for a WRITE with immediate data
	// Imm is the immediate data, in host byte order. It is valid if HasImm is true. Written is the
	// number of bytes that a WRITE with immediate data wrote; for a SEND it is 0.
	Imm     uint32
	HasImm  bool
	Written int
	// Invalidated is the window whose binding the peer ended with this message, or nil. It is also nil if this
	// end had ended the binding before, and has closed the window or bound it again.
	Invalidated *Window

	slot   *recvSlot
	number uint64
	asked  uint32 // the number of the question that the message asks, or 0
	answer bool   // the message belongs to a Call: nothing else may receive it
}

// Release gives the buffer back to the connection. The connection posts the receive again and
// returns the credit to the peer. The caller must not use Data afterwards. If the message was
// released before, Release returns ErrMessage. Release does not block.
func (m Message) Release() error {
	s := m.slot
	if s == nil || !s.released.CompareAndSwap(m.number, m.number+1) {
		return ErrMessage
	}
	if s.large != nil {
		s.releaseLarge()
	}
	c := s.c.Load()          // before the receive may get another message
	if s.recycle(c) != nil { // the connection is ending or gone
		return s.buf.Release()
	}
	c.returnCredits(1)
	return nil
}

// ReleaseMany releases messages as Release does, and returns the credits of messages of one
// connection that follow each other together. It releases all of them even if it returns an error,
// which joins their errors.
func ReleaseMany(ms []Message) error {
	var errs error
	var c *Conn
	back := uint32(0)
	for i := range ms {
		m := &ms[i]
		s := m.slot
		if s == nil || !s.released.CompareAndSwap(m.number, m.number+1) {
			errs = errors.Join(errs, ErrMessage)
			continue
		}
		if s.large != nil {
			s.releaseLarge()
		}
		if of := s.c.Load(); of != c { // loaded before the receive may get another message
			if back > 0 {
				c.returnCredits(back)
			}
			c, back = of, 0
		}
		if s.recycle(c) == nil {
			back++
		} else { // the connection is ending or gone
			errs = errors.Join(errs, s.buf.Release())
		}
	}
	if back > 0 {
		c.returnCredits(back)
	}
	return errs
}

// handOut fills *m with the message of slot i. *m must be zero, and the caller must have taken i from c.arrived or
// c.returned.
func (c *Conn) handOut(i uint32, m *Message) {
	s := c.recvs.at(i)
	m.number = s.released.Load()
	if !s.answer {
		m.asked = s.asked
	}
	m.slot, m.Imm, m.HasImm, m.Invalidated = s, s.imm, s.with, s.shut
	if f := s.large; f != nil {
		m.Data = f.buf.Bytes()
	} else if s.data {
		m.Data = s.buf.Bytes()[frameSize : frameSize+s.n]
	} else {
		m.Written = s.n
	}
}

// disposeMessage takes back a message whose future was discarded. The message keeps its place in
// the order of arrival. The answer of a Call that was given up is released.
func disposeMessage(m Message, err error) {
	s := m.slot
	if err != nil || s == nil || !s.released.CompareAndSwap(m.number, m.number+1) {
		return
	}
	c := s.c.Load()
	if m.answer {
		c.dropAnswer(s)
		return
	}
	c.line.Add(1)
	c.backIn.Push(s)
	c.sh.r.Schedule(&c.matchTask, false)
	// If the connection is gone, there may be no further call of takeBack.
	if isGone(c) {
		c.dropBack()
	}
}

// dropBack frees the messages of discarded futures of a connection that is gone. Any goroutine may call
// it: each message is in backIn one time, so one call gets it.
func (c *Conn) dropBack() {
	for s := c.backIn.TakeAll(); s != nil; {
		next := s.hook.Unlink()
		c.line.Add(-1)
		s.giveUp(c)
		s = next
	}
}

// takeBack moves the messages of discarded futures from c.backIn to c.returned, in the order of
// arrival. If the connection is gone, it frees their slots instead. Holder only.
func (c *Conn) takeBack() {
	if isGone(c) {
		c.dropBack()
		return
	}
	for s := c.backIn.TakeAll(); s != nil; {
		next := s.hook.Unlink()
		at, _ := slices.BinarySearchFunc(c.returned, s.nth, func(i uint32, nth uint64) int { return cmp.Compare(c.recvs.at(i).nth, nth) })
		c.returned = slices.Insert(c.returned, at, s.i)
		s = next
	}
}

// hasMessages reports whether a message waits for a receiver. Holder only.
func (c *Conn) hasMessages() bool {
	q := c.arrived.Load()
	return len(c.returned) > 0 || q != nil && !q.Empty()
}

// nextMessage takes the oldest message that waits for a receiver, and returns its slot. Returned
// messages are older than all in c.arrived. Holder only.
func (c *Conn) nextMessage() (i uint32, ok bool) {
	if len(c.returned) == 0 {
		if q := c.arrived.Load(); q != nil {
			return q.Pop()
		}
		return 0, false
	}
	i = c.returned[0]
	c.returned = slices.Delete(c.returned, 0, 1)
	c.line.Add(-1)
	return i, true
}

// freeMessages frees the slots of the messages that no receiver has got. It takes those in c.arrived
// together, and before the older ones: a goroutine that takes messages at the same time gets none that came
// after one that is freed. Holder only.
func (c *Conn) freeMessages() {
	if q := c.arrived.Load(); q != nil {
		all := make([]uint32, c.mostCredits())
		for _, i := range all[:q.PopN(all)] {
			c.recvs.at(i).giveUp(c)
		}
	}
	for len(c.returned) > 0 {
		i, _ := c.nextMessage()
		c.recvs.at(i).giveUp(c)
	}
}
