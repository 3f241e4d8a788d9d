package soft

import "time"

// roundTrip measures how long acknowledgements take on a link with a socket, so that a requester notices a
// loss long before its acknowledgement timer ends. That timer is for a peer that is gone: it is set for the
// worst path, and each end uses up a retry.
//
//	          no acknowledgement for timeout()
//	sending ─────────────────────────────────────> probing: the first unacknowledged packet is sent again,
//	   ^                                              │      alone; then again after twice the time
//	   └───────────── any acknowledgement ────────────┘
//
// A probe is one packet, so one that was not necessary (the peer got no processor for a while) costs
// little. If its answer acknowledges that packet alone, the rest is sent again. The time between probes
// stays doubled until a measurement, so that a path whose round trip has grown is measured.
//
// Within the fabric nothing is lost silently, and there are no probes.
//
// Implements: RFC 6298 (smoothing, backoff; section 3, Karn's algorithm), except for the bounds.
type roundTrip struct {
	smoothed  time.Duration // 0: not measured yet
	deviation time.Duration
	psn       uint64        // measured now, until all below it are acknowledged; 0: none
	began     time.Duration // when the packet before psn was sent
	probes    uint8         // since the last measurement; at most maxDoubled
}

const (
	// minProbeTime is far above the round trip in a machine room, and a small part of the usual
	// acknowledgement timeout (134 ms): 6 probes take place before that ends.
	minProbeTime = 4 * time.Millisecond
	// firstProbeTime is the time to the first probe without a measurement (RFC 6298, 2.1).
	firstProbeTime = time.Second
	// maxDoubled bounds how often the time between probes doubles.
	maxDoubled = 6
)

// begin starts a measurement with the packet before psn, unless one runs.
func (t *roundTrip) begin(psn uint64, now time.Duration) {
	if t.psn == 0 {
		t.psn, t.began = psn, now
	}
}

// forget ends the measurement: an acknowledgement of a packet that is sent again does not tell which one
// it answers.
func (t *roundTrip) forget() { t.psn = 0 }

// took notes that all packets below psn are acknowledged.
func (t *roundTrip) took(psn uint64, now time.Duration) {
	if t.psn == 0 || psn < t.psn {
		return
	}
	t.psn, t.probes = 0, 0
	got := max(now-t.began, 1)
	if t.smoothed == 0 {
		t.smoothed, t.deviation = got, got/2
		return
	}
	t.deviation += ((t.smoothed - got).Abs() - t.deviation) / 4
	t.smoothed += (got - t.smoothed) / 8
}

// timeout returns how long to wait for an acknowledgement before the next probe.
func (t *roundTrip) timeout() time.Duration {
	wait := firstProbeTime
	if t.smoothed != 0 {
		wait = max(t.smoothed+4*t.deviation, minProbeTime)
	}
	return wait << t.probes
}
