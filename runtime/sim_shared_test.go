package runtime

import (
	"errors"
	"fmt"
	"slices"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// simSharedDepth is how many receives a node's connections share: fewer than
// they could use, so that some wait for others.
const simSharedDepth = 20

// simSharedRecv is the shared receives of a node.
type simSharedRecv struct {
	n      *simNode
	s      *SharedRecv
	posted int
	// came is what has completed and was not looked at, in that order.
	came []simTaken
	out  map[*simLocal]bool // posted and not completed
}

type simTaken struct {
	l *simLocal
	a Arrival
	e error
}

func (n *simNode) openShared() {
	s, err := n.rt.NewSharedRecv(simSharedDepth, DefaultMaxSGE)
	if err != nil {
		n.w.fail("shared receives on %s: %v", n.name, err)
	}
	n.srq = &simSharedRecv{n: n, s: s, out: map[*simLocal]bool{}}
}

// post posts a receive for whoever comes first.
func (s *simSharedRecv) post() {
	w := s.n.w
	e := &simEnd{w: w, n: s.n} // nobody's in particular
	l := e.local(simRawSize+w.r.IntN(200), w.r.between(1, 3))
	f, err := s.s.PostRecv(l.slices...)
	if err != nil {
		l.free()
		w.counts[opSharedRecv][outcomeRefused]++
		if !errors.Is(err, reactor.ErrRecvFull) && !s.n.stopping {
			w.fail("%s: posting a shared receive: %v", s.n.name, err)
		}
		return
	}
	w.nextOp++
	w.issued++
	s.posted++
	s.out[l] = true
	f.Then(func(a Arrival, err error) {
		if !s.out[l] {
			w.fail("%s: a shared receive completed twice", s.n.name)
		}
		delete(s.out, l)
		s.came = append(s.came, simTaken{l, a, err})
	})
}

// act keeps some receives posted.
func (s *simSharedRecv) act() {
	for s.posted < simSharedDepth && s.n.w.r.one(2) {
		s.post()
	}
}

// collect takes what has arrived: each is the next message of the connection
// that it came by.
func (s *simSharedRecv) collect() {
	w := s.n.w
	var early []simTaken
	for _, t := range s.came {
		if s.early(t) {
			early = append(early, t)
			continue
		}
		s.posted--
		w.trace.note(uint64(s.n.i), uint64(errorClass(t.e)), uint64(t.a.Bytes), uint64(t.a.Imm))
		if t.e != nil {
			w.counts[opSharedRecv][outcomeFailed]++
			s.mayFail(t)
		} else {
			w.counts[opSharedRecv][outcomeOK]++
			if err := s.arrived(t); err != nil {
				w.fail("%s: %v", s.n.name, err)
			}
		}
		t.l.free()
	}
	s.came = early
}

// early tells whether the connection may still be accepted: its peer can send
// as soon as it is established.
func (s *simSharedRecv) early(t simTaken) bool {
	c := t.a.Conn
	return t.e == nil && c != nil && s.n.endOf(c) == nil && !isGone(c) && !slices.Contains(s.n.w.orphans, c)
}

// mayFail: a receive fails because the connection that had begun it did, or
// because the node ends.
func (s *simSharedRecv) mayFail(t simTaken) {
	if c := t.a.Conn; !s.n.stopping && c != nil && c.Err() == nil {
		if e := s.n.endOf(c); e != nil && e.flushedAt == 0 { // the reason is on its way
			e.flushedAt = s.n.w.now()
		}
	}
}

func (s *simSharedRecv) arrived(t simTaken) error {
	if t.a.Conn == nil {
		return fmt.Errorf("a message by queue pair %d, which is no connection's", t.a.QPNum)
	}
	e := s.n.endOf(t.a.Conn)
	if e == nil { // its other end never came to be
		return nil
	}
	return e.receivedRaw(t.l, t.a.Result)
}

// endOf is the end of a connection here.
func (n *simNode) endOf(c *Conn) *simEnd {
	for _, p := range n.w.pairs {
		for _, e := range p.ends {
			if e != nil && e.c == c {
				return e
			}
		}
	}
	return nil
}

// due is how many messages are on their way to shared receives of the node.
func (s *simSharedRecv) due() (n int) {
	for _, p := range s.n.w.pairs {
		if e := p.ends[1]; e != nil && e.shares() && e.n == s.n {
			n += len(e.in().sent)
		}
	}
	return n
}

// shares tells whether the end receives through its node's shared receives.
func (e *simEnd) shares() bool { return e.c.opts.Shared != nil }

// end closes the queue, when no connection is left.
func (s *simSharedRecv) end() bool {
	if s.s.gone {
		return true
	}
	err := s.s.end()
	if err != nil && !errors.Is(err, verbs.ErrBusy) {
		s.n.w.fail("closing the shared receives of %s: %v", s.n.name, err)
	}
	return err == nil
}
