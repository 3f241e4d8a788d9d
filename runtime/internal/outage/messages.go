package outage

import (
	"encoding/binary"
	"errors"
	"fmt"

	verbena "github.com/verbena-rdma/verbena/runtime"
)

// flight is the number of messages outstanding at a time.
const flight = 8

// echo sends messages, up to flight of them at a time, and checks that each comes back once and in
// order.
func (s *session) echo() bool {
	type sent struct {
		op uint64
		f  verbena.Future
	}
	l, room := s.p.ledger, make(chan struct{}, flight)
	futures, arrived := make(chan sent, flight), make(chan struct{}, flight)
	total := make(chan uint64, 1)
	go func() {
		defer close(futures)
		n := uint64(0)
		defer func() { total <- n }()
		for ; s.round(n); n++ {
			room <- struct{}{} // received after the answer or a failure
			b, err := s.p.rt.Alloc(messageSize(s.seed, n))
			if err != nil {
				s.fault("a buffer", err)
				return
			}
			message(b.Bytes(), s.seed, n)
			op := l.begin(KindSend, s.limits.Op)
			f, err := s.c.Send(bg, b.Slice())
			if rerr := b.Release(); rerr != nil { // the memory is freed after the completion
				s.fault("releasing a buffer", rerr)
			}
			if err != nil {
				_ = l.end(op, err)
				return
			}
			futures <- sent{op, f}
		}
	}()
	go func() { // separate from the receiving of answers, which may never come
		defer close(arrived)
		for f := range futures {
			_, err := f.f.Await(bg)
			if l.end(f.op, err) == nil {
				arrived <- struct{}{}
			} else {
				<-room
			}
		}
	}()
	back, failed := uint64(0), false
	for range arrived {
		if !failed {
			failed = s.answered(back, KindEcho) != nil
			back++
		}
		<-room
	}
	n := <-total
	return s.all(n) && back == n && !failed
}

// answered receives answer n, which must equal message n.
func (s *session) answered(n uint64, k Kind) error {
	m, err := s.recv(k)
	if err != nil {
		return err
	}
	if err := checkMessage(m.Data, s.seed, n); err != nil {
		s.p.ledger.wrong("answered: %v", err)
	}
	return s.release(m)
}

// notify writes with immediate, and waits for the answer that the peer sends after it has checked
// the data.
func (s *session) notify(mine verbena.Remote) bool {
	to, err := mine.At(slotAt, slot)
	b, aerr := s.p.rt.Alloc(slot)
	if err := errors.Join(err, aerr); err != nil {
		return s.fault("preparing", err)
	}
	defer s.give(b)
	n := uint64(0)
	for ; s.round(n); n++ {
		fill(b.Bytes(), s.seed, n)
		if _, err := s.do(KindWriteImm, func() (verbena.Future, error) {
			return s.c.Start(bg, new(verbena.WriteOp(b.Slice(), to).Imm(uint32(n))))
		}); err != nil {
			return false
		}
		m, err := s.recv(KindEcho)
		if err != nil {
			return false
		}
		if len(m.Data) != messageHead || binary.LittleEndian.Uint64(m.Data) != n {
			s.p.ledger.wrong("write %d was answered with %x", n, m.Data[:min(len(m.Data), messageHead)])
		}
		if s.release(m) != nil {
			return false
		}
	}
	return s.all(n)
}

// release releases a message. It fails if the message was released before, but not if the
// connection has ended.
func (s *session) release(m verbena.Message) error {
	err := m.Release()
	if err != nil {
		s.fault("releasing a message", err)
	}
	return err
}

// give releases a buffer.
func (s *session) give(b verbena.Buffer) {
	if err := b.Release(); err != nil {
		s.fault("releasing a buffer", err)
	}
}

// fault handles an error outside an operation. The error is a finding, unless it follows from the
// end of the load, of the device or of the connection. fault returns false.
func (s *session) fault(what string, err error) bool {
	if s.p.over(err) || s.c.Err() != nil && Classify(err) != ClassUnknown {
		return false
	}
	s.p.ledger.wrong("%s", fmt.Errorf("%s: %w", what, err))
	return false
}
