package fabric

// SetDown takes the port's link down or brings it up. While it is down no packet leaves (sent
// packets are dropped, DroppedDown) and none arrives (arriving packets are dropped, Stats.Late);
// the endpoint still runs, so timers work. The change drops the packets in the inbox. Unlike
// Link.Down it affects the port: all its links in both directions. Runner only.
func (p *Port) SetDown(down bool) {
	if p.down != down {
		p.dropInbox()
		p.down = down
	}
}
