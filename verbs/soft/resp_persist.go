package soft

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// syncsAtOnce bounds the goroutines of a device that wait for the disk: each blocks a thread,
	// and disks gain nothing from more.
	syncsAtOnce = 8
	// maxParked bounds the packets parked behind a FLUSH: a correct peer has no more outstanding.
	// maxParkedAll bounds them for all queue pairs of a device: 32 full windows, or 64 MiB of copied
	// payload (parkedUnit). Packets beyond it are dropped, and the peer repeats them.
	maxParked    = windowPSNs
	maxParkedAll = 32 * maxParked
	// parkedUnit is the copied payload in bytes that counts as one more packet.
	parkedUnit = 4096
	// syncPatience is the time after which a repeated FLUSH gets an RNR NAK. A requester with the smallest timeout of
	// the runtime (code 13, 7 retries) gives up after 268 ms. Most disks have written by then, and a requester that has got
	// the NAK may send nothing for the delay.
	syncPatience = 100 * time.Millisecond
	// longestRNR is the timer code of the longest RNR delay, 655.36 ms.
	longestRNR = 0
)

// persistence is a persistent FLUSH whose pages are being written.
//
// Writing to a disk blocks for milliseconds, so Progress does not do it: a goroutine writes and hands
// the result back. (Persistent memory takes an instruction for each cache line, and Progress executes
// them itself unless they are many: mem.Arena.SyncIsQuick.) Until then the responder of this queue pair executes nothing. Request packets are
// parked in order, so that requests after a FLUSH (above all an ATOMIC_WRITE that publishes the
// flushed data) execute after it, as with rdma_rxe, which writes in its responder. In virtual
// time the engine itself writes, so that a run stays in one goroutine.
//
// A disk may be slower than the requester's timer, which then resends the FLUSH and all later
// requests, several times. Each request is parked once. A repetition of a parked request, or of
// the FLUSH, is not executed: the first is answered. Repeated requests from before the FLUSH are
// answered at once. After syncPatience a repeated FLUSH gets an RNR NAK, which gives the requester all of its retries
// back, if the peer repeats without end after RNR NAKs (queuePair.peerWaits). Any other peer fails when its retries are
// used up, though this end lives: an RNR NAK might end it earlier.
//
// At most syncsAtOnce FLUSHes of a device are written at a time, in the order of their arrival. A queue pair has one at
// most, so none takes the turns of others.
//
//	            FLUSH                      pages written
//	executing ────────> parking packets ─────────────────> answered, executes the parked packets
//	                         │ ERR, RESET, destroyed
//	                         v
//	                    packets dropped; the result is discarded
//
// Close of a region waits until none of it is being written, so the writer needs no pin of its
// own, and a closed context leaves no goroutine behind.
type persistence struct {
	hook ring.Hook[persistence]
	q    *queuePair
	mr   *memoryRegion
	psn  uint64
	addr uint64
	n    int
	from time.Duration // when the FLUSH arrived
	err  error         // written by the goroutine before the push
}

// InboxHook returns the link into the device's inbox.
func (j *persistence) InboxHook() *ring.Hook[persistence] { return &j.hook }

// persist makes n bytes at addr of m persistent and then concludes the FLUSH at psn.
func (q *queuePair) persist(psn uint64, m *memoryRegion, addr uint64, n int) {
	d := q.dev
	if d.syncIsQuick(m.arena, n) {
		q.flushed(psn, d.syncRange(m.arena, addr, n))
		return
	}
	j := &persistence{q: q, mr: m, psn: psn, addr: addr, n: n, from: d.now}
	q.resp.sync = j
	m.syncing.Add(1)
	d.unsynced = append(d.unsynced, j)
	d.startSyncs()
}

// startSyncs has the next FLUSHes written, as long as the device may write more at once.
func (d *device) startSyncs() {
	for ; d.syncing < syncsAtOnce && len(d.unsynced) > 0; d.syncing++ {
		go d.unsynced[0].run()
		d.unsynced = slices.Delete(d.unsynced, 0, 1)
	}
}

func (j *persistence) run() {
	defer j.mr.syncing.Done() // last: afterwards this goroutine does not touch the device
	d := j.q.dev
	j.err = d.syncRange(j.mr.arena, j.addr, j.n)
	d.synced.Push(j)
	d.kick()
}

// takeSynced concludes the FLUSHes whose pages are written. It drops those that a queue pair no
// longer waits for.
func (d *device) takeSynced() {
	for j := d.synced.TakeAll(); j != nil; {
		following := j.hook.Unlink()
		d.syncing--
		if q := j.q; q.resp.sync == j {
			q.resp.sync = nil
			q.flushed(j.psn, j.err)
			q.executeParked()
		}
		j = following
	}
	d.startSyncs()
}

// awaitSync handles a repetition of the FLUSH that is being written.
func (q *queuePair) awaitSync(psn uint64) {
	if q.peerWaits && q.dev.now-q.resp.sync.from >= syncPatience {
		q.sendNak(wire.RNRNak(longestRNR), psn)
	}
}

// park keeps a request packet for later, and reports whether it did. It rejects a packet whose
// PSN is not above the last parked one: a repetition, or out of order. A PSN missing among the
// parked packets is requested again when these are executed.
func (q *queuePair) park(k *fabric.Packet, psn uint64) bool {
	r := &q.resp
	if len(r.parked) > 0 && psn <= r.lastParked {
		return false
	}
	if len(r.parked) >= maxParked || q.dev.parked >= maxParkedAll {
		q.dev.counters.Unparked++
		return false
	}
	// The wait may be long, and a link has few buffers. A requester's memory stays by reference: it may be taken
	// back at any time, so only the execution reads it, under its guard.
	if _, guarded := k.Holder.(fabric.Guard); !guarded {
		k.MakeOwn()
	}
	q.dev.parked += parkedUnits(k)
	r.parked, r.lastParked = append(r.parked, k), psn
	return true
}

// parkedUnits returns what a parked packet counts of maxParkedAll.
func parkedUnits(k *fabric.Packet) int {
	if k.Holder != nil {
		return 1
	}
	return 1 + k.PayloadLen/parkedUnit
}

// executeParked executes the parked packets until one of them is another persistent FLUSH.
func (q *queuePair) executeParked() {
	r := &q.resp
	n := 0
	h := &q.dev.scratch.rx
	for ; n < len(r.parked) && r.sync == nil; n++ {
		k := r.parked[n]
		r.parked[n] = nil
		q.dev.parked -= parkedUnits(k)
		if _, err := wire.Parse(k.Header(), h); err == nil { // as it was on arrival
			q.onRequest(k, h) // keeps no packet: no FLUSH is being written
		}
		k.Release()
	}
	// dropParked may have emptied it in the meantime.
	r.parked = append(r.parked[:0], r.parked[min(n, len(r.parked)):]...)
}

// dropParked releases the parked packets and forgets the FLUSH being written, or waiting for that.
func (q *queuePair) dropParked() {
	r, d := &q.resp, q.dev
	if i := slices.Index(d.unsynced, r.sync); i >= 0 {
		d.unsynced = slices.Delete(d.unsynced, i, i+1)
		r.sync.mr.syncing.Done()
	}
	for _, k := range r.parked {
		if k != nil {
			d.parked -= parkedUnits(k)
			k.Release()
		}
	}
	clear(r.parked)
	r.parked, r.sync = r.parked[:0], nil
}
