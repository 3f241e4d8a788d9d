package runtime

import (
	"bytes"
	"context"
	"errors"
	"net/netip"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
)

// simGroup is the multicast group that all nodes join.
var simGroup = netip.MustParseAddr("239.86.69.82")

// simPackets is a node's datagrams: what it sends goes to other nodes' and to
// the group, and may be lost, doubled or overtaken; it never becomes something
// else, nor comes to somebody else.
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
	excused bool // it may fail
}

// simDatagram is what was sent under a number, which goes as the immediate.
type simDatagram struct {
	seed uint64
	n    int
	to   *PacketConn // nil: the group
}

type simDatagramOp struct {
	f Future
	l *simLocal
}

// simRemembered is how many datagrams back one may still come: more than any link
// holds.
const simRemembered = 1 << 14

func (n *simNode) openPackets() {
	p, err := n.rt.ListenPacket(netip.AddrPortFrom(n.addr, 0).String(), Options{SendDepth: n.w.r.between(3, 32), RecvCredits: n.w.r.between(4, 20)})
	if err != nil {
		n.w.fail("datagrams on %s: %v", n.name, err)
	}
	s := &simPackets{n: n, p: p, peers: map[*PacketConn]*Peer{}, asked: map[*PacketConn]futures.Future[*Peer]{}}
	s.joining = p.join(simGroup)
	n.packets = s
}

// act sends and receives, and opens again what failed.
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
			w.fail("datagrams of %s to ERR: %v", s.n.name, err)
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
		r := &resolving{p: s.p, dst: to.p.Addr()}
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
		if s.p.Err() == nil && !errors.Is(err, context.Canceled) {
			w.fail("%s: a datagram refused: %v", s.n.name, err)
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

// collect takes what has come and ended.
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
			w.fail("%s: a datagram failed: %v", s.n.name, err)
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
			w.fail("%s: no datagram will come, but all is well: %v", s.n.name, err)
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

// came compares what has arrived with what was sent.
func (s *simPackets) came(k Packet) {
	w := s.n.w
	d := w.datagrams[k.Imm%simRemembered]
	w.trace.note(uint64(s.n.i), uint64(k.Imm), uint64(len(k.Data)))
	switch {
	case !k.HasImm || w.numbers[k.Imm%simRemembered] != k.Imm || k.Imm >= w.nextDatagram:
		w.fail("%s: a datagram that nobody sent: immediate %t %d, %d bytes", s.n.name, k.HasImm, k.Imm, len(k.Data))
	case d.to != nil && d.to != s.p:
		w.fail("%s: datagram %d was for somebody else", s.n.name, k.Imm)
	case !bytes.Equal(k.Data, w.fill(d.n, d.seed)):
		w.fail("%s: datagram %d has other bytes than were sent", s.n.name, k.Imm)
	}
	if w.r.one(8) {
		back, err := s.p.PeerOf(k)
		if err == nil {
			err = back.Close()
		}
		if err != nil && s.p.Err() == nil && !s.n.removed {
			w.fail("%s: who sent datagram %d: %v", s.n.name, k.Imm, err)
		}
	}
	if err := k.Release(); err != nil {
		w.fail("releasing a datagram: %v", err)
	}
}

// end closes, and tells whether nothing is left.
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
