package soft

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Bounds of one Progress call, so that a busy device lets others run in between.
const (
	packetsPerProgress = 256 // taken from the inbox
	emitPerProgress    = 128 // sent by one queue pair, by its requester and its responder each
)

// scratch is memory of the engine that is only used within one Progress call.
type scratch struct {
	rx, tx  wire.Header
	only    wire.Only    // header of single packets, in both directions, see req_fast.go
	word    [8]byte      // the answer to an atomic
	segs    [][]byte     // word, as a payload
	grh     [grhLen]byte // the network header of a datagram
	grhSegs [1][]byte    // grh, as a payload
}

// value returns word as a number in host order.
func (s *scratch) value() uint64 { return binary.NativeEndian.Uint64(s.word[:]) }

func (s *scratch) init() { s.segs = [][]byte{s.word[:]} }

// Progress runs the engine once:
//
//  1. It goes on with what waited for a disk, then takes packets from the inbox
//     and handles them.
//  2. Doorbells: queue pairs with new work requests become busy.
//  3. Due timers.
//  4. The connection manager's timers.
//  5. Queue pairs whose link has room again, and then busy ones, send requests and
//     responses, acknowledge, or flush.
//  6. It publishes completions and raises their events.
//
// next is the time of the next timer, 0 if there is none; more reports whether work is left. The
// fabric calls it, from one goroutine at a time.
func (d *device) Progress(now time.Duration) (next time.Duration, more bool) {
	if d.p == nil {
		return 0, false
	}
	d.now = now
	d.takeFinished()
	left := packetsPerProgress
	for ; left > 0; left-- {
		k := d.p.Take()
		if k == nil {
			break
		}
		if op, ok := d.scratch.only.Parse(k.Header()); (ok && d.receiveFast(k, op, &d.scratch.only)) || !d.receive(k) {
			d.p.Return(k)
		}
	}
	d.leaveGuard()
	for q := d.doorbells.TakeAll(); q != nil; {
		following := q.doorbellHook.Unlink()
		q.doorbellRung.Store(false) // before the queue is examined
		d.activate(q)
		q = following
	}
	d.fireTimers()
	if d.onProgress != nil {
		next = d.onProgress(now)
	}
	if len(d.stalls) > 0 {
		d.resume()
	}
	if d.owed.count > 0 {
		d.payOwed()
	}
	// Queue pairs that become busy while they are worked on wait in later.
	d.busy, d.later = d.later, d.busy[:0]
	for i, q := range d.busy {
		d.busy[i] = nil // one by one: clear costs more for the usual one or two entries
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
	if at := d.owed.since + owedTime; d.owed.count > 0 && (next == 0 || at < next) {
		next = at
	}
	return next, len(d.later) > 0 || left == 0
}

// activate puts a queue pair on the work list.
func (d *device) activate(q *queuePair) {
	if !q.active {
		q.active = true
		d.later = append(d.later, q)
	}
}

// breakLater moves a queue pair to ERR before Progress ends, for callers in the middle of its
// work.
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

// receive handles one packet that receiveFast has declined. It reports whether the packet is
// kept, to be released later.
func (d *device) receive(k *fabric.Packet) (kept bool) {
	h := &d.scratch.rx
	if k.HdrLen == 0 && k.Far != nil { // from the link itself
		var quoted []byte
		if len(k.Payload) > 0 {
			quoted = k.Payload[0]
		}
		d.onRefused(k.Far, quoted)
		return false
	}
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
		return false // silently, as hardware: the sender's timer expires
	}
	switch {
	case !q.service.reliable:
		q.onUnreliable(k, h)
	case h.Opcode.Response():
		return q.onResponse(k, h)
	default:
		return q.onRequest(k, h)
	}
	return false
}

// enterGuard begins reading the payload of a packet. It returns false if the owner has taken the
// memory back; the packet then counts as lost. The engine stays inside until a packet with
// another guard arrives or Progress leaves the inbox: consecutive packets under one guard cost
// nothing.
func (d *device) enterGuard(k *fabric.Packet) bool {
	g, ok := k.Holder.(*guard)
	if !ok || g == d.held {
		return true
	}
	d.leaveGuard()
	if !g.Enter() {
		return false
	}
	d.held = g
	return true
}

// leaveGuard ends reading. Call it before any step that may wait for another engine.
func (d *device) leaveGuard() {
	if d.held != nil {
		d.held.Leave()
		d.held = nil
	}
}

// retire kills a guard of this device.
func (d *device) retire(g *guard) {
	d.leaveGuard()
	g.kill()
}
