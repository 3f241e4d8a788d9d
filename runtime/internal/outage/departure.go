package outage

import "encoding/binary"

// Departure is what a device does otherwise than the specification says, and what the
// load can tell from an error of ours.
type Departure string

// What Soft-RoCE does when packets are lost, or so late that they are sent again
// (drivers/infiniband/sw/rxe, Linux 6.12). Both begin with check_ack in rxe_comp.c, where
// the NAK of a request stands for the answers to all requests before it, so that comp.psn
// passes READs and atomics that were not answered.
const (
	// DepartureLacking is a READ that succeeded without all of its data: the answers
	// lie behind comp.psn then, and complete the request without being copied
	// (check_psn). Atomics that this happens to are found by the reactor
	// (reactor.ErrUnanswered); of a READ nobody can know but who knows the data.
	DepartureLacking Departure = "a READ that lacked data"
	// DepartureTwice is an atomic that was executed twice: it is sent again from
	// comp.psn (req_retry in rxe_req.c), under another number than at first, so that
	// the peer does not know it again.
	DepartureTwice Departure = "an atomic that was executed twice"
)

// departs records a departure.
func (l *ledger) departs(d Departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.departed[d]++
}

// lacks tells whether b, which was cleared before, is what fill writes where it is
// anything: what is not right was not written.
func lacks(b []byte, seed, n uint64) bool {
	base := mix(seed ^ n)
	for i := 0; i+8 <= len(b); i += 8 {
		if got := binary.LittleEndian.Uint64(b[i:]); got != 0 && got != base+uint64(i/8) {
			return false
		}
	}
	return len(b)%8 == 0
}
