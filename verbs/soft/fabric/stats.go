package fabric

// Stats is the counters of a port since Attach.
type Stats struct {
	TxPackets  uint64 // given to Send
	TxBytes    uint64 // headers and payload of these
	RxPackets  uint64 // taken by the endpoint
	RxBytes    uint64
	Dropped    uint64 // sent, and dropped by the script, a partition, or a port that is down
	Duplicated uint64 // sent, and delivered twice
	Delayed    uint64 // sent, and delayed; copies too
	Corrupted  uint64 // sent, and a header byte changed
	Unknown    uint64 // sent to a GID without a port
	Overflow   uint64 // sent, and dropped because the receiver's inbox had no room
	Malformed  uint64 // taken, and refused by the endpoint
	Late       uint64 // arrived after Detach, or while the port was down
}

// Stats returns the counters. It waits for a current run; not from within a run. It works after
// Detach.
func (p *Port) Stats() Stats {
	p.acquire()
	s := p.stats
	if p.release() {
		p.Kick()
	}
	return s
}

// Overflow returns Stats.Overflow. Runner only.
func (p *Port) Overflow() uint64 { return p.stats.Overflow }

// CountMalformed counts a packet that the endpoint took and could not parse. Runner only.
func (p *Port) CountMalformed() { p.stats.Malformed++ }
