package soft

import (
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

const (
	// syncsAtOnce bounds the goroutines of a device that wait for the disk:
	// each holds a thread meanwhile, and disks gain nothing from more.
	syncsAtOnce = 8
	// maxParked bounds the packets held behind a FLUSH: no more than an honest
	// peer has outstanding. maxParkedAll bounds them for all queue pairs of a
	// device: 32 full windows. More is dropped, and comes again.
	maxParked    = windowPSNs
	maxParkedAll = 32 * maxParked
)

// persistence is a persistent FLUSH whose pages are being written.
//
// Writing blocks for milliseconds, so it is kept out of the engine's turn: a
// goroutine writes and hands the result back. Until then the responder of this
// queue pair executes nothing. Request packets are held, in order, and so whatever
// follows a FLUSH (an ATOMIC_WRITE that publishes what was flushed, above all)
// is executed behind it, as rdma_rxe does, which writes in its responder. In
// virtual time the engine writes itself, so that a run stays in one goroutine.
//
// A disk may be slower than the requester's timer, which then sends the FLUSH and
// all behind it again, several times. Each request is held once; a repetition of
// one that is held, or of the FLUSH, is dropped: the first is answered. Requests
// from before the FLUSH are answered again at once.
//
//	            FLUSH                      pages written
//	executing ────────> parking packets ─────────────────> answered, executes what it parked
//	                         │ ERR, RESET, destroyed
//	                         v
//	                    packets dropped; the result finds nobody
//
// A region waits in Close until nothing of it is being written, so the writer
// needs no pin of its own, and a closed context leaves no goroutine behind.
type persistence struct {
	hook ring.Hook[persistence]
	q    *queuePair
	mr   *memoryRegion
	psn  uint64
	addr uint64
	n    int
	err  error // written by the goroutine before it is pushed
}

// InboxHook links the result into the device's inbox.
func (j *persistence) InboxHook() *ring.Hook[persistence] { return &j.hook }

// persist makes n bytes at addr of m persistent and then concludes the FLUSH
// at psn.
func (q *queuePair) persist(psn uint64, m *memoryRegion, addr uint64, n int) {
	if q.dev.provider.fab.Virtual() {
		q.flushed(psn, q.dev.syncRange(m.arena, addr, n))
		return
	}
	j := &persistence{q: q, mr: m, psn: psn, addr: addr, n: n}
	q.resp.sync = j
	m.syncing.Add(1)
	go j.run()
}

func (j *persistence) run() {
	defer j.mr.syncing.Done() // last: then nobody touches the device
	d := j.q.dev
	d.syncSlots <- struct{}{}
	j.err = d.syncRange(j.mr.arena, j.addr, j.n)
	<-d.syncSlots
	d.synced.Push(j)
	d.kick()
}

// takeSynced concludes what has been written. Those that a queue pair does not
// wait for any more are dropped.
func (d *device) takeSynced() {
	for j := d.synced.TakeAll(); j != nil; {
		following := j.hook.Unlink()
		if q := j.q; q.resp.sync == j {
			q.resp.sync = nil
			q.flushed(j.psn, j.err)
			q.executeParked()
		}
		j = following
	}
}

// park keeps a request packet for later, and reports whether it did. A packet
// that is not behind the last one held is a repetition, or out of order: when
// what is held is executed, a PSN that is missing there is asked for.
func (q *queuePair) park(k *fabric.Packet, psn uint64) bool {
	r := &q.resp
	last := r.expected // the FLUSH
	if len(r.parked) > 0 {
		last = r.lastParked
	}
	if psn <= last {
		return false
	}
	if len(r.parked) >= maxParked || q.dev.parked >= maxParkedAll {
		q.dev.counters.Unparked++
		return false
	}
	q.dev.parked++
	r.parked, r.lastParked = append(r.parked, k), psn
	return true
}

// executeParked takes the held packets as if they came now, until one of them is
// a FLUSH to wait for again.
func (q *queuePair) executeParked() {
	r := &q.resp
	n := 0
	h := &q.dev.scratch.rx
	for ; n < len(r.parked) && r.sync == nil; n++ {
		k := r.parked[n]
		r.parked[n] = nil
		q.dev.parked--
		if _, err := wire.Parse(k.Header(), h); err == nil { // as it was when it came
			q.onRequest(k, h) // keeps nothing: no FLUSH is being written
		}
		k.Release()
	}
	// dropParked may have emptied it meanwhile.
	r.parked = append(r.parked[:0], r.parked[min(n, len(r.parked)):]...)
}

// dropParked gives back what is held and forgets what is being written.
func (q *queuePair) dropParked() {
	r := &q.resp
	for _, k := range r.parked {
		if k != nil {
			q.dev.parked--
			k.Release()
		}
	}
	clear(r.parked)
	r.parked, r.sync = r.parked[:0], nil
}
