package outage

import "encoding/binary"

// Departure is a behavior of a device that violates the specification and that the load can
// distinguish from a bug of the runtime.
type Departure string

// Departures of Soft-RoCE when packets are lost, or are so late that they are retransmitted
// (drivers/infiniband/sw/rxe, Linux 6.12). Both have their cause in check_ack in rxe_comp.c: it
// takes the NAK of a request as the answer to all requests before it. So comp.psn advances beyond
// READs and atomics that were not answered.
const (
	// DepartureLacking is a READ that succeeded without all of its data. The PSNs of its answers
	// are below comp.psn: the answers complete the request, but their data is not copied
	// (check_psn). The reactor detects an atomic in this state (reactor.ErrUnanswered), but not a
	// READ: only a comparison with the expected data shows the error.
	DepartureLacking Departure = "a READ that lacked data"
	// DepartureTwice is an atomic that was executed twice. It is retransmitted from comp.psn
	// (req_retry in rxe_req.c), with another PSN than in the first transmission, so the peer does
	// not recognize it as a duplicate.
	DepartureTwice Departure = "an atomic that was executed twice"
)

// departs counts a departure.
func (l *ledger) departs(d Departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.departed[d]++
}

// lacks reports whether every word of b is either zero or the word that fill writes. b was cleared
// before the transfer, so the zero words were not written.
func lacks(b []byte, seed, n uint64) bool {
	base := mix(seed ^ n)
	for i := 0; i+8 <= len(b); i += 8 {
		if got := binary.LittleEndian.Uint64(b[i:]); got != 0 && got != base+uint64(i/8) {
			return false
		}
	}
	return len(b)%8 == 0
}
