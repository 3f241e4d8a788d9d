package soft

// A persistent FLUSH: its pages are written by a diskJob of kind writeBack.
//
// Persistent memory takes an instruction for each cache line, and Progress executes
// them itself unless they are many: mem.Arena.SyncIsQuick. Otherwise the responder of this queue pair executes nothing
// until the pages are written. Request packets are
// parked in order, so that requests after a FLUSH (above all an ATOMIC_WRITE that publishes the
// flushed data) execute after it, as with rdma_rxe, which writes in its responder.
//
// A disk may be slower than the requester's timer, which then resends the FLUSH and all later
// requests, several times. Each request is parked once. A repetition of a parked request, or of
// the FLUSH, is not executed: the first is answered. Repeated requests from before the FLUSH are
// answered at once. After diskPatience a repeated FLUSH gets an RNR NAK, which gives the requester all of its retries
// back, if the peer repeats without end after RNR NAKs (queuePair.peerWaits). Any other peer fails when its retries are
// used up, though this end lives: an RNR NAK might end it earlier.
//
// At most jobsAtOnce FLUSHes of a device to one file system are written at a time, in the order of their arrival. A queue pair has one at
// most, so none takes the turns of others.
//
//	            FLUSH                      pages written
//	executing ────────> parking packets ─────────────────> answered, executes the parked packets
//	                         │ ERR, RESET, destroyed
//	                         v
//	                    packets dropped; the result is discarded

// persist makes n bytes at addr of m persistent and then concludes the FLUSH at psn.
func (q *queuePair) persist(psn uint64, m *memoryRegion, addr uint64, n int) {
	w := &q.dev.disk
	if w.syncIsQuick(m.arena, n) {
		q.flushed(psn, w.sync(m.arena, addr, n))
		return
	}
	q.begin(&q.resp.disk, writeBack, span{m, addr, n})
	q.resp.disk.psn = psn
}
