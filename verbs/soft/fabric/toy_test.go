package fabric

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// gid is the address of node n.
func gid(n int) verbs.GID {
	return verbs.GIDFromAddr(netip.AddrFrom4([4]byte{127, 0, byte(n >> 8), byte(n)}))
}

// toy is an endpoint: it sends on request, answers requests if configured, and records the packets
// that arrive.
type toy struct {
	port *Port
	// onTurn, if set, is called in every run before packets are taken.
	onTurn func(now time.Duration)
	// onPacket, if set, is called with every packet; otherwise answers applies.
	onPacket func(k *Packet)
	answers  bool
	deadline time.Duration
	limit    int  // packets per run; 0: all
	deaf     bool // takes no packets
	turns    int
	psns     []wire.PSN // of the arrived packets, in order
}

func (e *toy) Progress(now time.Duration) (time.Duration, bool) {
	e.turns++
	if e.onTurn != nil {
		e.onTurn(now)
	}
	if e.deaf {
		return e.deadline, false
	}
	for n := 0; n != e.limit || e.limit == 0; n++ {
		k := e.port.Take()
		if k == nil {
			return e.deadline, false
		}
		e.consume(k)
	}
	return e.deadline, true
}

func (e *toy) consume(k *Packet) {
	var h wire.Header
	if _, err := wire.Parse(k.Header(), &h); err != nil {
		e.port.CountMalformed()
		k.Release()
		return
	}
	switch {
	case e.onPacket != nil:
		e.onPacket(k)
	case e.answers && !h.Opcode.Response():
		e.send(k.Src, wire.RCAcknowledge, h.PSN, nil, nil)
	}
	e.psns = append(e.psns, h.PSN)
	k.Release()
}

// send sends one packet, in the toy's run.
func (e *toy) send(dst verbs.GID, op wire.Opcode, psn wire.PSN, payload []byte, h Holder) {
	k := e.port.Get()
	k.SetHeader(&wire.Header{Opcode: op, PSN: psn})
	k.AddRef(payload)
	k.Holder = h
	e.port.Send(wire.To(dst), k)
}

// attach attaches toys at nodes 0, 1, ... and detaches them at the end.
func attach(t testing.TB, f *Fabric, toys ...*toy) {
	t.Helper()
	for i, e := range toys {
		attachAt(t, f, i, e)
	}
}

func attachAt(t testing.TB, f *Fabric, node int, e *toy) {
	t.Helper()
	// In real time an endpoint does not run before it is kicked or sent to, so the assignment is in
	// time.
	p, err := f.Attach(gid(node), "toy", e)
	if err != nil {
		t.Fatal(err)
	}
	e.port = p
	t.Cleanup(p.Detach)
}

// inTurn runs fn as the runner of e.
func (e *toy) inTurn(fn func()) { e.port.Exclusive(fn) }

// settle steps a virtual fabric until it is quiet, through its events up to until.
func settle(f *Fabric, until time.Duration) {
	for {
		for f.Step() {
		}
		t, ok := f.NextEvent()
		if !ok || t > until {
			f.AdvanceTo(until)
			return
		}
		f.AdvanceTo(t)
	}
}

// counter is a holder that counts its calls.
type counter struct{ done atomic.Int64 }

func (c *counter) PacketDone(*Packet) { c.done.Add(1) }

// payloadOf joins the payload's segments.
func payloadOf(k *Packet) []byte { return bytes.Join(k.Payload, nil) }

func u64(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }
