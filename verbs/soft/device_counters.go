package soft

// Counters count what a device drops without telling anybody: unreliable packets
// that found no taker, and packets of any service for which there was no room.
// They begin with the process.
type Counters struct {
	QKeyViolations uint64 // datagrams with another queue key than their queue pair's
	NoQueuePair    uint64 // datagrams to no queue pair, a wrong one, or a group that none is attached to
	NoReceive      uint64 // messages that met no receive
	TooLong        uint64 // messages longer than the receive
	Access         uint64 // UC WRITEs with a wrong key, range or permission
	Invalid        uint64 // packets that are wrong in themselves
	Sequence       uint64 // UC packets out of sequence
	Overflow       uint64 // packets sent, of any service, that found their link or its receiver full
	Unparked       uint64 // packets dropped while a FLUSH writes its pages, because too many wait for that
}

// drop counts a packet by why it was dropped.
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

// Counters reads the counters of a device. It waits for a turn of the engine to
// end; any goroutine may call it. An unknown name is a
// *verbs.DeviceError.
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
