package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// simGroup is the multicast group that all nodes join.
var simGroup = netip.MustParseAddr("239.86.69.82")

// simPackets is a node's PacketConn, which sends datagrams to all nodes and to simGroup. A datagram may
// be lost, duplicated or reordered. A datagram must not be changed, and must not arrive at a node to
// which it was not sent.
type simPackets struct {
	n       *simNode
	p       *PacketConn
	peers   map[*PacketConn]*Peer
	asked   map[*PacketConn]futures.Future[*Peer]
	group   *Peer
	joining futures.Future[*Peer]
	sends   []simDatagramOp
	waits   []futures.Future[Packet]
	closing bool
	excused bool // the PacketConn may fail, because its queue pair was moved to ERR
}

// simDatagram describes the content and the destination of a sent datagram. Each datagram has a
// number, which it carries as its immediate data.
type simDatagram struct {
	seed uint64
	n    int
	to   *PacketConn // nil: the group
}

type simDatagramOp struct {
	f Future
	l *simLocal
}

// simRemembered is how many sent datagrams the model keeps: more than can be in transit.
const simRemembered = 1 << 14

func (n *simNode) openPackets() {
	p, err := n.rt.ListenPacket(netip.AddrPortFrom(n.addr, 0).String(), Options{SendDepth: n.w.r.between(3, 32), RecvCredits: n.w.r.between(4, 20)})
	if err != nil {
		n.w.fail("opening a PacketConn on %s: %v", n.name, err)
	}
	s := &simPackets{n: n, p: p, peers: map[*PacketConn]*Peer{}, asked: map[*PacketConn]futures.Future[*Peer]{}}
	_, s.joining = p.join(simGroup)
	n.packets = s
}

// act() starts receives, and at most one send or address resolution. Rarely it moves the queue pair to
// ERR. If the PacketConn is closed because it has failed, act() opens a new PacketConn.
func (s *simPackets) act() {
	w := s.n.w
	if isClosed(s.p.closed) {
		if len(s.sends)+len(s.waits) == 0 {
			s.n.openPackets()
		}
		return
	}
	for len(s.waits) < 6 && w.r.one(2) {
		s.waits = append(s.waits, s.p.Recv())
	}
	if s.p.Err() != nil || s.n.removed {
		return
	}
	if w.r.one(600) {
		w.events[eventKillUD]++
		s.excused = true
		if err := s.p.q.QP().Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); err != nil {
			w.fail("moving the UD queue pair of %s to ERR: %v", s.n.name, err)
		}
		return
	}
	to := w.nodes[w.r.IntN(simNodes)].packets
	switch {
	case w.r.one(4):
		if s.group != nil {
			s.send(s.group, nil)
		}
	case to == nil || to.p == s.p && w.r.one(2):
	case s.peers[to.p] != nil:
		s.send(s.peers[to.p], to.p)
	case !s.asked[to.p].Valid() && w.r.one(3):
		r := &resolving{p: s.p, ways: []addrResolver{{src: netip.AddrPortFrom(s.p.rt.addr, 0), dst: to.p.Addr()}}}
		r.promise, s.asked[to.p] = s.n.rt.peers.New(nil)
		s.p.sh.r.Defer(r.start)
	}
}

func (s *simPackets) send(to *Peer, at *PacketConn) {
	w := s.n.w
	d := simDatagram{seed: w.r.Uint64(), n: w.size(s.p.MaxPacket()), to: at}
	l := (&simEnd{w: w, n: s.n}).local(d.n, 1).put(w.fill(d.n, d.seed))
	number := w.nextDatagram
	f, err := s.p.SendImm(w.ended, to, l.slices[0], number)
	if err != nil {
		l.free()
		w.counts[opDatagram][outcomeRefused]++
		if s.p.Err() == nil && !errors.Is(err, errGivenUp) {
			w.fail("%s: a datagram was refused with %v, but the PacketConn has not failed, and no queue is full", s.n.name, err)
		}
		return
	}
	w.nextDatagram++
	w.nextOp++
	w.issued++
	w.datagrams[number%simRemembered] = d
	w.numbers[number%simRemembered] = number
	s.sends = append(s.sends, simDatagramOp{f, l})
}

// collect() takes the completed sends, the arrived datagrams, and the results of Resolve and Join.
func (s *simPackets) collect() {
	w := s.n.w
	for len(s.sends) > 0 {
		_, err, ok := s.sends[0].f.Poll()
		if !ok {
			break
		}
		w.trace.note(uint64(s.n.i), uint64(errorClass(err)))
		s.sends[0].l.free()
		s.sends = s.sends[1:]
		if err == nil {
			w.counts[opDatagram][outcomeOK]++
			continue
		}
		w.counts[opDatagram][outcomeFailed]++
		if !s.excused && !s.closing && !s.n.removed {
			w.fail("%s: the send of a datagram failed without a reason: %v", s.n.name, err)
		}
	}
	for len(s.waits) > 0 {
		k, err, ok := s.waits[0].Poll()
		if !ok {
			break
		}
		s.waits = s.waits[1:]
		if err == nil {
			w.counts[opRecvDatagram][outcomeOK]++
			s.came(k)
		} else if w.counts[opRecvDatagram][outcomeFailed]++; s.p.Err() == nil {
			w.fail("%s: the receive of a datagram failed with %v, but the PacketConn has not failed", s.n.name, err)
		}
	}
	for p, f := range s.asked {
		if e, err, ok := f.Poll(); ok {
			delete(s.asked, p)
			if err == nil {
				s.peers[p] = e
			}
		}
	}
	if s.joining.Valid() {
		if e, err, ok := s.joining.Poll(); ok && err == nil {
			s.group = e
		}
	}
}

// came() compares an arrived datagram with the datagram that was sent with the same number.
func (s *simPackets) came(k Packet) {
	w := s.n.w
	d := w.datagrams[k.Imm%simRemembered]
	w.trace.note(uint64(s.n.i), uint64(k.Imm), uint64(len(k.Data)))
	switch {
	case !k.HasImm || w.numbers[k.Imm%simRemembered] != k.Imm || k.Imm >= w.nextDatagram:
		w.fail("%s received a datagram that was not sent: HasImm %t, Imm %d, %d bytes", s.n.name, k.HasImm, k.Imm, len(k.Data))
	case d.to != nil && d.to != s.p:
		w.fail("%s received datagram %d, which was sent to another node", s.n.name, k.Imm)
	case !bytes.Equal(k.Data, w.fill(d.n, d.seed)):
		w.fail("%s received datagram %d with other bytes than were sent", s.n.name, k.Imm)
	}
	if w.r.one(8) {
		back, err := s.p.PeerOf(k)
		if err == nil {
			err = back.Close()
		}
		if err != nil && s.p.Err() == nil && !s.n.removed {
			w.fail("%s: PeerOf and Close for the sender of datagram %d: %v", s.n.name, k.Imm, err)
		}
	}
	if err := k.Release(); err != nil {
		w.fail("releasing a datagram: %v", err)
	}
}

// end() closes the PacketConn, and reports whether all its operations have ended. The caller repeats
// the call until end() returns true.
func (s *simPackets) end() bool {
	if !s.closing {
		s.closing = true
		s.p.setCause(ErrConnClosed)
		s.p.sh.r.Defer(s.p.end)
	}
	return isClosed(s.p.closed) && len(s.sends)+len(s.waits)+len(s.asked) == 0 && !s.joining.Valid()
}

func isClosed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// simSharedDepth is how many receives a node's connections share. It is so small that messages
// sometimes find no receive.
const simSharedDepth = 20

// simSharedRecv has the shared receives of a node.
type simSharedRecv struct {
	n      *simNode
	s      *SharedRecv
	posted int
	// came holds the completed receives that were not checked yet, in the order of completion.
	came []simTaken
	out  map[*simLocal]bool // the local memory of the receives that are posted and not completed
}

// simTaken is a completed shared receive.
type simTaken struct {
	l *simLocal
	a Arrival
	e error
}

func (n *simNode) openShared() {
	s, err := n.rt.NewSharedRecv(simSharedDepth, DefaultMaxSGE)
	if err != nil {
		n.w.fail("making shared receives on %s: %v", n.name, err)
	}
	n.srq = &simSharedRecv{n: n, s: s, out: map[*simLocal]bool{}}
}

// post() posts a shared receive.
func (s *simSharedRecv) post() {
	w := s.n.w
	e := &simEnd{w: w, n: s.n} // belongs to no connection; only its method local() is called
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

// act() posts a random number of receives.
func (s *simSharedRecv) act() {
	for s.posted < simSharedDepth && s.n.w.r.one(2) {
		s.post()
	}
}

// collect() checks the completed receives: each must hold the next message of its connection.
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

// early() reports whether t is a message on a connection that the simulation has not accepted yet.
// Such messages exist because the peer can send as soon as the connection is established.
func (s *simSharedRecv) early(t simTaken) bool {
	c := t.a.Conn
	return t.e == nil && c != nil && s.n.endOf(c) == nil && !isGone(c) && !slices.Contains(s.n.w.orphans, c)
}

// mayFail handles a failed receive. If the receive's connection has not failed yet, the connection must
// fail soon. simEnd.collect checks this.
func (s *simSharedRecv) mayFail(t simTaken) {
	if c := t.a.Conn; !s.n.stopping && c != nil && c.Err() == nil {
		if e := s.n.endOf(c); e != nil && e.flushedAt == 0 {
			e.flushedAt = s.n.w.now()
		}
	}
}

func (s *simSharedRecv) arrived(t simTaken) error {
	if t.a.Conn == nil {
		return fmt.Errorf("a message arrived at queue pair %d, which belongs to no connection", t.a.QPNum)
	}
	e := s.n.endOf(t.a.Conn)
	if e == nil { // an orphan: the dialing end has given up
		return nil
	}
	return e.receivedRaw(t.l, t.a.Result)
}

// endOf returns the end of this node whose Conn is c, or nil if there is none.
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

// due() returns how many messages were sent to the shared receives of the node and not received yet.
func (s *simSharedRecv) due() (n int) {
	for _, p := range s.n.w.pairs {
		if e := p.ends[1]; e != nil && e.shares() && e.n == s.n {
			n += len(e.in().sent)
		}
	}
	return n
}

// shares() reports whether the end receives through its node's shared receives.
func (e *simEnd) shares() bool { return e.p.raw && e.c.opts.Shared != nil }

// end() closes the shared receives. It returns false while a connection still uses them.
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
