package fabric

// Stats are the counters of a port since Attach.
type Stats struct {
	TxPackets  uint64 // given to Send
	TxBytes    uint64 // headers and payload of those
	RxPackets  uint64 // taken by the endpoint
	RxBytes    uint64
	Dropped    uint64 // sent, and dropped by the script, a partition, or a port that is down
	Duplicated uint64 // sent, and delivered once more
	Delayed    uint64 // sent, and delivered later than at once; copies too
	Corrupted  uint64 // sent, and a header byte changed
	Unknown    uint64 // sent to a GID where no port is
	Overflow   uint64 // sent, and dropped because the receiver's inbox had no room for it
	Malformed  uint64 // taken, and refused by the endpoint
	Late       uint64 // arrived after Detach, or while the port was down
}

// Stats reads the counters. It waits for a running turn; not from within a turn. Works after Detach.
func (p *Port) Stats() Stats {
	p.acquire()
	s := p.stats
	if p.release() {
		p.Kick()
	}
	return s
}

// Overflow is Stats.Overflow. In its turn only.
func (p *Port) Overflow() uint64 { return p.stats.Overflow }

// CountMalformed counts a packet that the endpoint took and could not parse.
// In its turn only.
func (p *Port) CountMalformed() { p.stats.Malformed++ }
