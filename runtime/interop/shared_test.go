package interop

import (
	"bytes"
	"net"
	"testing"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

const (
	pairs      = 8  // queue pairs on one shared receive queue
	sharedRecv = 32 // receives that they share
)

// arrival is a message taken by a shared receive.
type arrival struct {
	a    verbena.Arrival
	err  error
	into verbena.Slice
}

// sharing is the local end of ibv_srq_pingpong: connections that take their receives from one
// queue. Every message is the same, because all queue pairs of the program receive into one memory
// and send from it.
type sharing struct {
	b       *bench
	recv    *verbena.SharedRecv
	out     verbena.Slice
	conns   map[*verbena.Conn]int // messages that came by each
	arrived chan arrival
}

func (s *sharing) post(into verbena.Slice) {
	s.b.Helper()
	f, err := s.recv.PostRecv(into)
	s.b.must(err)
	f.Then(func(a verbena.Arrival, err error) { s.arrived <- arrival{a, err, into} })
}

// say sends the message. A failure to send shows at the connection.
func (s *sharing) say(c *verbena.Conn) {
	if f, err := s.c(c).Send(s.b.ctx, s.out); err == nil {
		f.Discard()
	}
}

// c returns c after checking that it is one of the connections; a device could name another queue
// pair.
func (s *sharing) c(c *verbena.Conn) *verbena.Conn {
	s.b.Helper()
	if _, ok := s.conns[c]; !ok {
		s.b.Fatalf("a message came by %p, which is none of ours", c)
	}
	return c
}

// play answers until the program has ended: it counts all exchanges together, and more of them may
// be outstanding then.
func (s *sharing) play(p *program, client bool) (n int) {
	b := s.b
	b.Helper()
	for {
		select {
		case <-p.ended:
			return n
		case <-b.ctx.Done():
			b.Fatalf("after %d messages: %v", n, b.ctx.Err())
		case m := <-s.arrived:
			if m.err != nil { // the program has ended, or p reports that it has not
				<-p.ended
				return n
			}
			c := s.c(m.a.Conn)
			s.check(m, client || s.conns[c] > 0)
			s.conns[c]++
			n++
			s.post(m.into)
			s.say(c)
		}
	}
}

// check compares a message with the expected one. The first message of a client program on a queue
// pair may be partly older: zeros.
func (s *sharing) check(m arrival, whole bool) {
	s.b.Helper()
	got, want := m.into.Bytes()[:m.a.Bytes], s.out.Bytes()
	if len(got) != len(want) || whole && !bytes.Equal(got, want) {
		s.b.Fatalf("a message of %d bytes by QP 0x%06x is not what was sent before", len(got), m.a.QPNum)
	}
	for i, c := range got {
		if c != 0 && c != want[i] {
			s.b.Fatalf("byte %d of a message is %d, want %d or 0", i, c, want[i])
		}
	}
}

func shares(b *bench, p *program, nc net.Conn, client bool) {
	rt := b.open()
	region, err := rt.NewRegion((1+sharedRecv)*pingSize, verbs.AccessLocalWrite)
	b.must(err)
	b.Cleanup(func() { b.must(region.Close()) })
	s := &sharing{b: b, conns: map[*verbena.Conn]int{}, arrived: make(chan arrival, sharedRecv)}
	s.out, err = region.Slice(0, pingSize)
	b.must(err)
	copy(s.out.Bytes(), pattern(0, pingSize))
	s.recv, err = rt.NewSharedRecv(sharedRecv, 1)
	b.must(err)
	defer func() { b.must(s.recv.Close()) }()
	for i := range sharedRecv {
		into, err := region.Slice((1+i)*pingSize, pingSize)
		b.must(err)
		s.post(into)
	}
	own := make([]bootstrap.Dest, bootstrap.SRQPairs)
	var prepared []*verbena.Prepared
	for i := range pairs {
		q, err := rt.Prepare(verbena.PlainOptions{Options: verbena.Options{Shared: s.recv}})
		b.must(err)
		prepared, own[i] = append(prepared, q), q.Local()
	}
	talk := bootstrap.Server
	if client {
		talk = bootstrap.Client
	}
	b.must(talk(b.ctx, nc, own, func(peers []bootstrap.Dest) error {
		for i, q := range prepared {
			c, err := q.Connect(b.ctx, peers[i])
			if err != nil {
				return err
			}
			s.conns[c] = 0
		}
		return nil
	}))
	if client {
		for c := range s.conns {
			s.say(c)
		}
	}
	if n := s.play(p, client); n < pings {
		b.Errorf("%d messages came, want at least %d", n, pings)
	}
	for c, n := range s.conns {
		if n == 0 {
			b.Errorf("no message came by the queue pair at %v", c.LocalAddr())
		}
		c.Abort() // drop messages outstanding to the ended program
		b.closing(c)
	}
	p.exchanged()
}

// Rule: several local queue pairs take their receives from one queue, and the program's from its
// own.
func TestIbvSrqPingpongServer(t *testing.T) {
	pingpong(t, "ibv_srq_pingpong", "server", shares, "-q", "8", "-r", "32")
}

func TestIbvSrqPingpongClient(t *testing.T) {
	pingpong(t, "ibv_srq_pingpong", "client", shares, "-q", "8", "-r", "32")
}
