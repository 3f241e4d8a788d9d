package soft

import (
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Packets that arrive while a queue pair waits for a disk are parked behind its diskJob, in their order, and executed
// afterwards.

const (
	// maxParked bounds the packets parked behind a job: a correct peer has no more outstanding.
	// maxParkedAll bounds them for all queue pairs of a device: 32 full windows, or 64 MiB of copied
	// payload (parkedUnit). Packets beyond it are dropped, and the peer repeats them. The first packet behind each job is
	// always kept: it may be the one whose memory the job brings in, and without it the next one would begin the next job.
	maxParked    = windowPSNs
	maxParkedAll = 32 * maxParked
	// parkedUnit is the copied payload in bytes that counts as one more packet.
	parkedUnit = 4096
)

// parkRequest keeps a request packet for later, and reports whether it did. It rejects a packet whose
// PSN is not above the last parked one: a repetition, or out of order. A PSN missing among the
// parked packets is requested again when these are executed.
func (q *queuePair) parkRequest(j *diskJob, k *fabric.Packet, psn uint64) bool {
	if len(j.parked) > 0 && psn <= j.lastParked || !q.park(j, k) {
		return false
	}
	j.lastParked = psn
	return true
}

// park keeps a packet for later, and reports whether it did.
func (q *queuePair) park(j *diskJob, k *fabric.Packet) bool {
	if n := len(j.parked); n >= maxParked || n > 0 && q.dev.parked >= maxParkedAll {
		q.dev.counters.Unparked++
		return false
	}
	// The wait may be long, and a link has few buffers. The peer's memory stays by reference: it may be taken
	// back at any time, so only the execution reads it, under its guard.
	if _, guarded := k.Holder.(fabric.Guard); !guarded {
		k.MakeOwn()
	}
	q.dev.parked += parkedUnits(k)
	j.parked = append(j.parked, k)
	return true
}

// parkedUnits returns what a parked packet counts of maxParkedAll.
func parkedUnits(k *fabric.Packet) int {
	if k.Holder != nil {
		return 1
	}
	return 1 + k.PayloadLen/parkedUnit
}

// executeParked executes, by handle, the packets parked behind j, which has finished. If one of them begins another job,
// at *at, the rest waits for that.
func (q *queuePair) executeParked(j *diskJob, at **diskJob, handle func(*fabric.Packet, *wire.Header) (kept bool)) {
	parked := j.parked
	j.parked = nil
	h := &q.dev.scratch.rx
	for i, k := range parked {
		if next := *at; next != nil {
			next.parked, next.lastParked = append(next.parked, parked[i:]...), j.lastParked
			return
		}
		q.dev.parked -= parkedUnits(k)
		if _, err := wire.Parse(k.Header(), h); err == nil && q.listens() { // as it was on arrival
			if handle(k, h) {
				continue
			}
		}
		k.Release()
	}
}

// dropParked releases the packets parked behind j.
func (q *queuePair) dropParked(j *diskJob) {
	for _, k := range j.parked {
		q.dev.parked -= parkedUnits(k)
		k.Release()
	}
	j.parked = nil
}
