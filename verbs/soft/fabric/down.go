package fabric

// SetDown takes the port's link down or brings it up. While it is down nothing
// leaves (what is sent is dropped, DroppedDown) and nothing arrives (what comes
// is dropped, Stats.Late); turns go on, so timers run. What lies in the inbox
// goes with the change. Unlike Link.Down it is the port's own end: all its links
// in both directions. In its turn only, as within Exclusive.
func (p *Port) SetDown(down bool) {
	if p.down != down {
		p.dropInbox()
		p.down = down
	}
}
