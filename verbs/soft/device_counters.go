package soft

// Counters counts the packets that a device drops without an error: unreliable packets that could
// not be delivered, and packets of any service for which there was no room. They start at zero
// with the process.
type Counters struct {
	QKeyViolations uint64 // datagrams whose queue key differs from their queue pair's
	NoQueuePair    uint64 // datagrams to no queue pair, a wrong one, or a group without attached queue pairs
	NoReceive      uint64 // messages that found no receive
	TooLong        uint64 // messages longer than the receive
	Access         uint64 // UC WRITEs with a wrong key, range or permission
	Invalid        uint64 // malformed packets
	Sequence       uint64 // UC packets out of sequence
	Overflow       uint64 // packets sent, of any service, that found their link or its receiver full
	Unparked       uint64 // packets dropped while their queue pair waits for a disk, because too many are parked
}

// drop counts a packet by the reason for dropping it.
func (c *Counters) drop(v verdict) {
	switch v {
	case noReceive:
		c.NoReceive++
	case tooLong:
		c.TooLong++
	case noAccess:
		c.Access++
	case invalid:
		c.Invalid++
	}
}

// Counters returns the counters of a device. It waits for a running Progress call; any goroutine
// may call it. An unknown name yields a *verbs.DeviceError.
//
// Implements: what a port's counters in sysfs are (qkey_violations and others).
func (p *Provider) Counters(device string) (c Counters, err error) {
	d := p.device(device)
	if d == nil {
		return c, p.unknown(device)
	}
	d.exclusive(func() {
		c = d.counters
		if d.p != nil {
			c.Overflow += d.p.Overflow()
		}
	})
	return c, nil
}
