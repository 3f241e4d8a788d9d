package verbstest

import (
	"cmp"

	"github.com/verbena-rdma/verbena/verbs"
)

// cmOwnTimeout gives the two ends different timeouts and retries: one of them below the device's own
// delay, and one of them none, for which the other end's has no meaning.
func cmOwnTimeout(c *Case) {
	for _, set := range [][2]uint8{{31, 1}, {1, 31}, {19, 18}, {31, 0}, {0, 31}, {1, 0}, {0, 0}} {
		k := &conn{ma: c.A.cm(), mb: c.B.cm(), ackTimeout: set, retries: [2]uint8{2, 5}}
		_, at := k.mb.listen(0)
		c.dialTo(k, at, "", "")
		for i, q := range []*QP{k.a, k.b} {
			attr, err := q.Query()
			c.must(err, "query_qp")
			if want := max(cmp.Or(set[i], verbs.DefaultAckTimeout), q.end.ackDelay()); attr.Timeout != want || attr.RetryCnt != k.retries[i] {
				c.failf("%s set code %d for the ACK timeout and %d retries, and has %d and %d; want code %d",
					q.end.name, set[i], k.retries[i], attr.Timeout, attr.RetryCnt, want)
			}
		}
	}
}

// ackDelay returns the delay that the end's device reports.
func (e *End) ackDelay() uint8 {
	e.c.t.Helper()
	attr, err := e.ctx.QueryDevice()
	e.c.must(err, "query_device")
	return attr.AckDelay
}

func cmAckTimeoutRange(c *Case) {
	id := c.A.cm().id(0)
	for _, code := range []uint8{0, 32, 255} {
		c.refused(id.SetAckTimeout(code), "a code that is no time", verbs.ErrInvalid)
	}
	c.must(id.SetAckTimeout(31), "set_option with the largest code")
}

// cmTOS has the connecting end set the type of service: expedited forwarding, as in RFC 3246.
func cmTOS(c *Case) {
	const ef = 46 << 2
	if c.pair.Caps.CMOnly {
		c.skipped = "a request of iWARP brings no type of service"
		return
	}
	k := &conn{ma: c.A.cm(), mb: c.B.cm(), tos: ef}
	_, at := k.mb.listen(0)
	c.dialTo(k, at, "", "")
	for _, q := range []*QP{k.a, k.b} {
		attr, err := q.Query()
		c.must(err, "query_qp")
		if attr.AH.DGID == (verbs.GID{}) {
			c.skipped = "the path has no GRH, and so no type of service"
			return
		}
		if attr.AH.TrafficClass != ef {
			c.failf("%s sends with type of service 0x%02x, want 0x%02x", q.end.name, attr.AH.TrafficClass, ef)
		}
	}
}
