package reactor

// The wr_id of every work request says whose it is:
//
//	63        40 39        20 19 16 15       0
//	┌───────────┬────────────┬─────┬──────────┐
//	│generation │ queue      │kind │ slot     │
//	└───────────┴────────────┴─────┴──────────┘
//
// A completion counts only if the queue exists, has that queue pair number,
// and its slot is out with that generation and kind. Generations start at a
// different place for every queue, so that a reused queue number does not
// revive old completions.
const (
	slotBits  = 16
	kindBits  = 4
	queueBits = 20
	genBits   = 24

	maxQueues = 1 << queueBits
	genMask   = 1<<genBits - 1
	// genStride spreads the first generations of successive queues (the golden
	// ratio of 2^24, odd).
	genStride = 0x9E3779
)

// Kind is what sort of operation a slot carries. It comes from the wr_id: after
// a failure nothing else of a completion says it.
type Kind uint8

// The kinds.
const (
	KindNone Kind = iota
	KindSend
	KindWrite
	KindRead
	KindAtomic
	KindRecv
	KindMarker      // a zero-length write that only retires what is before it
	KindAtomicWrite // an 8-byte write that is never seen in part
	KindFlush
	KindBind       // BIND_MW
	KindInvalidate // LOCAL_INV
	KindOther
)

var kindNames = [...]string{"none", "SEND", "WRITE", "READ", "ATOMIC", "RECV", "marker",
	"ATOMIC_WRITE", "FLUSH", "BIND_MW", "LOCAL_INV", "other"}

// String names the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind?"
}

func packWRID(queue, slot, gen uint32, k Kind) uint64 {
	return uint64(slot) | uint64(k)<<slotBits | uint64(queue)<<(slotBits+kindBits) | uint64(gen&genMask)<<(slotBits+kindBits+queueBits)
}

func unpackWRID(id uint64) (queue, slot, gen uint32, k Kind) {
	return uint32(id>>(slotBits+kindBits)) & (maxQueues - 1),
		uint32(id) & (1<<slotBits - 1),
		uint32(id >> (slotBits + kindBits + queueBits)),
		Kind(id>>slotBits) & (1<<kindBits - 1)
}
