package soft

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Bounds of one turn, so that a busy device lets others run between.
const (
	packetsPerTurn = 256 // taken from the inbox
	emitPerTurn    = 128 // sent by one queue pair, each way
)

// scratch is memory of the engine that outlives no turn.
type scratch struct {
	rx, tx  wire.Header
	only    wire.Only    // of packets either way, see req_quick.go
	word    [8]byte      // the answer to an atomic
	segs    [][]byte     // word, as a payload
	grh     [grhLen]byte // the network header of a datagram
	grhSegs [1][]byte    // grh, as a payload
}

// value is word as a number of this host.
func (s *scratch) value() uint64 { return binary.NativeEndian.Uint64(s.word[:]) }

func (s *scratch) init() { s.segs = [][]byte{s.word[:]} }

// Turn is one step of the engine:
//
//  1. FLUSHes whose pages are written are concluded, then packets of the inbox
//     are taken and acted on;
//  2. doorbells: queue pairs with new work requests become busy;
//  3. timers that are due;
//  4. the connection manager's timers;
//  5. queue pairs for whose packets there is room again, and then busy ones, send
//     requests and responses, acknowledge, or flush;
//  6. completions are published, and events raised for them.
//
// It is called by the fabric, by one goroutine at a time.
func (d *device) Progress(now time.Duration) (next time.Duration, more bool) {
	if d.p == nil {
		return 0, false
	}
	d.now = now
	d.takeSynced()
	left := packetsPerTurn
	for ; left > 0; left-- {
		k := d.p.Take()
		if k == nil {
			break
		}
		if op, ok := d.scratch.only.Parse(k.Header()); (ok && d.receiveQuick(k, op, &d.scratch.only)) || !d.receive(k) {
			d.p.Return(k)
		}
	}
	d.leaveGuard()
	for q := d.doorbells.TakeAll(); q != nil; {
		following := q.doorbellHook.Unlink()
		q.doorbellRung.Store(false) // before the queue is looked at
		d.activate(q)
		q = following
	}
	d.fireTimers()
	if d.onTurn != nil {
		next = d.onTurn(now)
	}
	if len(d.stalls) > 0 {
		d.resume()
	}
	// Those that become busy again while they are worked on wait in later.
	d.busy, d.later = d.later, d.busy[:0]
	for i, q := range d.busy {
		d.busy[i] = nil // one by one: clear costs more than the one or two there are
		q.active = false
		q.work()
	}
	if len(d.broken) > 0 {
		d.breakBroken()
	}
	for i, q := range d.dirtyCQs {
		d.dirtyCQs[i] = nil
		q.publish()
	}
	d.dirtyCQs = d.dirtyCQs[:0]
	if len(d.lastWQE) > 0 {
		d.tellLastWQE()
	}
	if at := d.timers.earliest(); at != 0 && (next == 0 || at < next) {
		next = at
	}
	return next, len(d.later) > 0 || left == 0
}

// activate puts a queue pair on the list of those to be worked on.
func (d *device) activate(q *queuePair) {
	if !q.active {
		q.active = true
		d.later = append(d.later, q)
	}
}

// breakLater moves a queue pair to ERR before the turn ends: for places that
// are in the middle of its work.
func (d *device) breakLater(q *queuePair) {
	if !slices.Contains(d.broken, q) {
		d.broken = append(d.broken, q)
	}
}

func (d *device) breakBroken() {
	for i := 0; i < len(d.broken); i++ { // breaking may break more
		if q := d.broken[i]; q.current() != verbs.QPSReset && q.current() != verbs.QPSErr {
			q.raise(verbs.EventQPFatal)
			q.enterError()
		}
	}
	clear(d.broken)
	d.broken = d.broken[:0]
}

// receive acts on one packet that receiveQuick has left. It tells whether the packet is kept, to be
// released later.
func (d *device) receive(k *fabric.Packet) (kept bool) {
	h := &d.scratch.rx
	n, err := wire.Parse(k.Header(), h)
	if err != nil || n != k.HdrLen || (k.PayloadLen > 0 && !h.Opcode.HasPayload()) {
		d.p.CountMalformed()
		return false
	}
	if h.Opcode.Transport() == wire.TransportUD {
		d.receiveDatagram(k, h)
		return false
	}
	q := d.find(h.DestQP)
	if q == nil || !q.takes(h) || !q.receives(k) {
		return false // silently, as hardware: the sender's timer tells it
	}
	switch {
	case !q.service.reliable:
		q.onUnreliable(k, h)
	case h.Opcode.Response():
		q.onResponse(k, h)
	default:
		return q.onRequest(k, h)
	}
	return false
}

// enterGuard begins reading the payload of a packet; false says that its owner
// has taken the memory back, and the packet is to be treated as lost. The
// engine stays inside until a packet with another guard comes, or the turn
// goes on: consecutive packets cost nothing.
func (d *device) enterGuard(k *fabric.Packet) bool {
	g, ok := k.Holder.(*guard)
	if !ok || g == d.held {
		return true
	}
	d.leaveGuard()
	if !g.enter() {
		return false
	}
	d.held = g
	return true
}

// leaveGuard ends reading. It must be called before anything that may wait for
// another engine.
func (d *device) leaveGuard() {
	if d.held != nil {
		d.held.leave()
		d.held = nil
	}
}

// retire kills a guard of this device's.
func (d *device) retire(g *guard) {
	d.leaveGuard()
	g.kill()
}
