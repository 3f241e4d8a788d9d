package outage

import (
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// raw sends messages one by one on a raw connection. It posts the receive for an answer before it
// sends the message.
func (s *session) raw() bool {
	in, err := s.p.rt.Alloc(longest)
	if err != nil {
		return s.fault("a buffer", err)
	}
	defer s.give(in)
	out, err := s.p.rt.Alloc(longest)
	if err != nil {
		return s.fault("a buffer", err)
	}
	defer s.give(out)
	n := uint64(0)
	for ; s.round(n); n++ {
		answer, op, err := s.post(KindEcho, in)
		if err != nil {
			return false
		}
		size := messageSize(s.seed, n)
		message(out.Bytes()[:size], s.seed, n)
		_, err = s.do(KindSend, func() (verbena.Future, error) { return s.rawSend(out, size) })
		if s.awaitRecv(answer, op, in, n) != nil || err != nil {
			return false
		}
	}
	return s.all(n)
}

// answerRaw echoes messages on a raw connection. It uses two receives: while it answers a message,
// the other receive stays posted.
func (s *session) answerRaw() {
	var bufs [2]verbena.Buffer
	var answers [2]verbena.Future
	var ops [2]uint64
	for i := range bufs {
		var err error
		if bufs[i], err = s.p.rt.Alloc(longest); err != nil {
			s.fault("a buffer", err)
			return
		}
		defer s.give(bufs[i])
	}
	for i := range bufs {
		var err error
		if answers[i], ops[i], err = s.post(KindRecv, bufs[i]); err != nil {
			if i > 0 {
				s.awaitAbandoned(answers[0], ops[0])
			}
			return
		}
	}
	for n := uint64(0); ; n++ {
		i := n % uint64(len(bufs))
		err := s.awaitRecv(answers[i], ops[i], bufs[i], n)
		if err == nil {
			size := messageSize(s.seed, n)
			_, err = s.do(KindSend, func() (verbena.Future, error) { return s.rawSend(bufs[i], size) })
		}
		if err == nil {
			answers[i], ops[i], err = s.post(KindRecv, bufs[i])
		}
		if err != nil { // the other receive ends with the connection
			j := (i + 1) % uint64(len(bufs))
			s.awaitAbandoned(answers[j], ops[j])
			return
		}
	}
}

// post posts a receive and records it as an operation.
func (s *session) post(k Kind, b verbena.Buffer) (verbena.Future, uint64, error) {
	op := s.p.ledger.begin(k, s.limits.Recv)
	f, err := s.c.PostRecv(b.Slice())
	if err != nil {
		_ = s.p.ledger.end(op, err)
	}
	return f, op, err
}

// awaitAbandoned waits for a receive that is no longer needed and ends with its connection.
func (s *session) awaitAbandoned(f verbena.Future, op uint64) {
	_, err := f.Await(bg)
	_ = s.p.ledger.end(op, err)
}

// awaitRecv waits for the receive of message n and checks the message.
func (s *session) awaitRecv(f verbena.Future, op uint64, b verbena.Buffer, n uint64) error {
	r, err := f.Await(bg)
	if s.p.ledger.end(op, err) != nil {
		return err
	}
	if err := checkMessage(b.Bytes()[:min(r.Bytes, longest)], s.seed, n); err != nil {
		s.p.ledger.wrong("raw: %v", err)
	}
	return nil
}

func (s *session) rawSend(b verbena.Buffer, size int) (verbena.Future, error) {
	part, err := b.Slice().Sub(0, size)
	if err != nil {
		return verbena.Future{}, err
	}
	return s.c.Send(bg, part)
}
