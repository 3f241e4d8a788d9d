package outage

import "encoding/binary"

// Departure is a behavior of a device that violates the specification and that the load can
// distinguish from a bug of the runtime.
type Departure string

// Departures of Soft-RoCE when packets are lost, or so late that they are retransmitted
// (drivers/infiniband/sw/rxe, Linux 6.12). Both begin with check_ack in rxe_comp.c, where the NAK
// of a request stands for the answers to all requests before it, so that comp.psn passes READs and
// atomics that were not answered.
const (
	// DepartureLacking is a READ that succeeded without all of its data: its answers then lie
	// behind comp.psn, and complete the request without being copied (check_psn). The reactor
	// detects atomics in this state (reactor.ErrUnanswered); for a READ only the expected data can
	// show it.
	DepartureLacking Departure = "a READ that lacked data"
	// DepartureTwice is an atomic that was executed twice: it is retransmitted from comp.psn
	// (req_retry in rxe_req.c) with another PSN than at first, so that the peer does not recognize
	// it as a duplicate.
	DepartureTwice Departure = "an atomic that was executed twice"
)

// departs records a departure.
func (l *ledger) departs(d Departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.departed[d]++
}

// lacks reports whether b, which was cleared before, is what fill writes wherever it is nonzero:
// the rest was not written.
func lacks(b []byte, seed, n uint64) bool {
	base := mix(seed ^ n)
	for i := 0; i+8 <= len(b); i += 8 {
		if got := binary.LittleEndian.Uint64(b[i:]); got != 0 && got != base+uint64(i/8) {
			return false
		}
	}
	return len(b)%8 == 0
}
