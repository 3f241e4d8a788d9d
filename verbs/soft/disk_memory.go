package soft

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The pages of a file on a disk (memoryRegion.slow) may not be in memory. And after the system has written a page back,
// the next write to it enters the file system, which may wait for its journal. So the engine has such pages brought in
// before it accesses them. Packets and requests that need them wait meanwhile:
//
//	destination of a WRITE, atomic or ATOMIC_WRITE, receive  requests of this queue pair are parked
//	source of a READ                                         answers of this queue pair wait
//	payload of a request                                     the send queue waits
//	destination of a READ or atomic                          responses to this queue pair are parked
//
// The packets of an unreliable queue pair have nothing to wait behind: their destination is written at once, and the
// engine waits. Such queue pairs should not receive into files.
//
// A request that was parked is executed as if it had just arrived: its key is checked again, because the owner may have
// taken it back while the disk was busy. That is why a goroutine only brings pages in, and does not write the data: a
// write that waits for a disk could not be taken back.
//
// To read, the engine asks the system whether the pages are there. For writing the system has no answer, so each packet
// has its pages brought in, if they were not brought in for the packets before it that waited with it. So the engine
// waits for a disk only if the system drops a page, or writes it back, just between the job and the access.
//
// A requester's timer may expire meanwhile. It is handled as during a FLUSH: each request is parked once, and a repeated
// one gets an RNR NAK after diskPatience (isLong). An adapter with on-demand paging answers by RNR NAKs, too.

// pageInAhead is the number of bytes of a message that a job brings in at once: packets of the message that arrive
// meanwhile need no job of their own.
const pageInAhead = 256 << 10

// has reports whether the pages of s were brought in for the packets that are executed now.
func (j *diskJob) has(s span) bool {
	if j == nil {
		return false
	}
	for _, t := range j.spans {
		if s.mr == t.mr && s.addr >= t.addr && s.addr+uint64(s.n) <= t.addr+uint64(t.n) {
			return true
		}
	}
	return false
}

// withMemory executes the packets parked behind j, whose pages were brought in.
func (q *queuePair) withMemory(j *diskJob, at **diskJob, handle func(*fabric.Packet, *wire.Header) (kept bool)) {
	*at = nil
	q.dev.present = j
	q.executeParked(j, at, handle)
	q.dev.present = nil
}

// spanAt returns the n bytes at the request address at.
func (m *memoryRegion) spanAt(at uint64, n uint32) span {
	return span{m, m.addr + (at - m.iova), int(n)}
}

// writableNow reports whether the engine may write the first n bytes of t now. Otherwise it has them brought in, with what
// follows of the rest of the message, and the packet waits (onRequest parks it).
func (q *queuePair) writableNow(t *target, n, rest uint32) bool {
	m := t.mr
	if !m.slow || !q.service.reliable || q.dev.present.has(m.spanAt(t.at, n)) {
		return true
	}
	behind := uint64(len(m.data)) - (t.at - m.iova) // a window may have been bound to less meanwhile
	q.begin(&q.resp.disk, toWrite, m.spanAt(t.at, max(n, uint32(min(uint64(rest), pageInAhead, behind)))))
	return false
}

// scatterable reports whether the engine may write n bytes from off on into the elements now. Otherwise it has them
// brought in by a job at *at, for which the packet waits.
func (q *queuePair) scatterable(at **diskJob, pd *protectionDomain, sges []verbs.SGE, off uint64, n int) bool {
	if q.dev.slowRegions == 0 || !q.service.reliable {
		return true
	}
	missing := slices.DeleteFunc(q.dev.slowSpans(pd, sges, off, n), q.dev.present.has)
	if len(missing) == 0 {
		return true
	}
	q.begin(at, toWrite, missing...)
	return false
}

// slowSpans returns the pieces in slow memory of n bytes from off on in the elements; mostly there are none. Elements
// that are not valid are left to the access.
func (d *device) slowSpans(pd *protectionDomain, sges []verbs.SGE, off uint64, n int) (slow []span) {
	for i := range sges {
		s := &sges[i]
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		part := uint32(min(uint64(s.Length)-off, uint64(n)))
		if m, err := d.resolve(pd, s.LKey, s.Addr+off, part, 0); err == nil && m.slow {
			slow = append(slow, m.spanAt(s.Addr+off, part))
		}
		if n -= int(part); n == 0 {
			break
		}
		off = 0
	}
	return slow
}

// jobFresh is how long the engine takes the pages of a job to be there, whatever the system says. The job's queue pair is
// worked on in the Progress call that takes its result.
const jobFresh = time.Millisecond

// readableNow reports whether the engine may read all of spans, of one packet, now. Otherwise it has them brought in by a
// job at *at, and the queue pair is activated when that is done.
func (q *queuePair) readableNow(at **diskJob, spans ...span) bool {
	d := q.dev
	j := *at
	if j != nil {
		if !j.done {
			return false
		}
		if *at = nil; d.now-j.at > jobFresh {
			j = nil
		}
	}
	var missing []span
	for _, s := range spans {
		if !j.has(s) && !d.disk.resident(s.mr.arena, s.addr, s.n) {
			missing = append(missing, s)
		}
	}
	if missing == nil {
		return true
	}
	q.begin(at, toRead, missing...)
	return false
}
