package interop

import (
	"fmt"
	"net"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// datagram is the message size in bytes for ibv_ud_pingpong here: one packet.
const datagram = 1024

// caller is a UD queue pair on a reactor. A PacketConn would have the queue key of the connection
// manager and resolve its peers through it; the program has its own queue key and no manager.
type caller struct {
	b     *bench
	ctx   verbs.Context
	pd    verbs.PD
	r     *reactor.Reactor
	q     *reactor.Queue
	arena *mem.Arena // a datagram to send, and one with 40 more bytes to receive
	mr    verbs.MR
	path  bootstrap.Path
	own   bootstrap.Dest
	to    reactor.Dest
}

func (b *bench) newCaller() *caller {
	b.Helper()
	u := &caller{b: b}
	closing := func(o interface{ Close() error }) {
		b.Cleanup(func() {
			if err := o.Close(); err != nil {
				b.Errorf("closing %v: %v", o, err)
			}
		})
	}
	var err error
	u.ctx, err = b.p.Open(b.ours.name)
	b.must(err)
	closing(u.ctx)
	u.pd, err = u.ctx.AllocPD()
	b.must(err)
	closing(u.pd)
	u.arena, err = mem.Map(2*datagram+verbs.GRHLen, mem.Options{})
	b.must(err)
	b.Cleanup(func() { _ = u.arena.Unmap() })
	u.mr, err = u.pd.RegMR(u.arena.Addr(), uint64(2*datagram+verbs.GRHLen), u.arena.Addr(), verbs.AccessLocalWrite)
	b.must(err)
	closing(u.mr)
	u.r, err = reactor.New(reactor.Config{Context: u.ctx})
	b.must(err)
	b.Cleanup(func() {
		if err := u.r.Close(b.ctx); err != nil {
			b.Errorf("closing the reactor: %v", err)
		}
	})
	u.q, err = u.r.Prepare(reactor.QueueConfig{PD: u.pd, Type: verbs.QPTUD, SendDepth: 4, RecvDepth: 4})
	b.must(err)
	u.path, u.own, err = bootstrap.Path{}.On(u.ctx)
	b.must(err)
	u.do(func() error {
		if err := u.q.Admit(); err != nil {
			return err
		}
		init := u.q.InitAttr()
		qp, err := u.pd.CreateQP(init)
		if err != nil {
			return err
		}
		u.q.Bind(qp, init.Cap)
		return u.path.Init(qp)
	})
	u.own.QPN, u.own.PSN = u.q.QP().Num(), bootstrap.RandomPSN()
	b.Cleanup(u.end)
	return u
}

// do runs fn while it holds the turn.
func (u *caller) do(fn func() error) {
	u.b.Helper()
	var err error
	u.b.must(u.r.Do(u.b.ctx, func() { err = fn() }))
	u.b.must(err)
}

// end destroys the queue pair, and then the address handle.
func (u *caller) end() {
	u.do(func() error {
		if err := u.q.QP().Close(); err != nil {
			return err
		}
		return u.q.Release(reactor.ErrClosed)
	})
	if u.to.AH != nil {
		u.b.must(u.to.AH.Close())
	}
}

// connect makes the queue pair ready and creates the address handle.
func (u *caller) connect(peers []bootstrap.Dest) error {
	attr, err := u.path.AH(peers[0])
	if err != nil {
		return err
	}
	if u.to.AH, err = u.pd.CreateAH(&attr); err != nil {
		return err
	}
	u.to.QPNum, u.to.QKey = peers[0].QPN, u.path.QKey
	var merr error
	if err := u.r.Do(u.b.ctx, func() {
		u.r.Flush() // post the receive before a datagram can come
		merr = u.path.Connect(u.q.QP(), u.own.PSN, peers[0])
	}); err != nil {
		return err
	}
	return merr
}

// element returns a list of n bytes of the arena.
func (u *caller) element(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: u.arena.Addr() + uint64(off), Length: uint32(n), LKey: u.mr.LKey()}}
}

// taking receives the outcome of one receive.
type taking chan error

// Complete implements reactor.Sink.
func (t taking) Complete(_ reactor.SinkContext, c reactor.Completion, err error) {
	if err == nil && (c.Bytes != verbs.GRHLen+datagram || c.Flags&verbs.WCWithGRH == 0) {
		err = fmt.Errorf("a datagram of %d bytes with flags %v, want %d and %d in front of them", c.Bytes, c.Flags, datagram, verbs.GRHLen)
	}
	t <- err
}

// post posts a receive. The datagram comes with a header that names its sender.
func (u *caller) post() func() ([]byte, error) {
	u.b.Helper()
	t := make(taking, 1)
	u.b.must(u.q.PostRecv(&reactor.Recv{Sink: t}, u.element(datagram, verbs.GRHLen+datagram), reactor.Block))
	return func() ([]byte, error) {
		select {
		case err := <-t:
			if err != nil {
				return nil, err
			}
		case <-u.b.ctx.Done():
			return nil, u.b.ctx.Err()
		}
		at := u.arena.Bytes()[datagram:]
		// Within a device of Soft-RoCE the IP header lacks its checksum, which the network would
		// add (rxe_net.c: rxe_loopback bypasses ip_local_out), and so cannot be recognized.
		if u.b.ours.name == u.b.theirs.name {
			return at[verbs.GRHLen:][:datagram], nil
		}
		from, err := verbs.InitAHFromGRH(at[:verbs.GRHLen], 1, 0)
		if err == nil && from.DGID.Addr() != u.b.theirs.addr {
			err = fmt.Errorf("a datagram from %v, want %v", from.DGID, u.b.theirs.addr)
		}
		return at[verbs.GRHLen:][:datagram], err
	}
}

// send sends a datagram.
func (u *caller) send(message []byte) func() error {
	u.b.Helper()
	copy(u.arena.Bytes(), message)
	f, err := u.q.Submit(u.b.ctx, &reactor.Send{Opcode: verbs.WRSend, To: u.to}, &reactor.Payload{SGEs: u.element(0, datagram)}, reactor.Block)
	u.b.must(err)
	return func() error { _, err := f.Await(u.b.ctx); return err }
}

func datagrams(b *bench, p *program, nc net.Conn, client bool) {
	u := b.newCaller()
	first := u.post()
	talk := bootstrap.Server
	if client {
		talk = bootstrap.Client
	}
	b.must(talk(b.ctx, nc, []bootstrap.Dest{u.own}, u.connect))
	(&player{b: b, size: datagram, post: u.post, send: u.send}).play(first, client)
	p.exchanged()
}

// Rule: datagrams are sent to a program's queue pair by its exchanged address and queue key, and
// come with the 40 bytes that name their sender.
func TestIbvUdPingpongServer(t *testing.T) {
	pingpong(t, "ibv_ud_pingpong", "server", datagrams)
}

func TestIbvUdPingpongClient(t *testing.T) {
	pingpong(t, "ibv_ud_pingpong", "client", datagrams)
}
