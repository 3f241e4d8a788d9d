package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// maxAckDelay is how much a device's own delay may add to a code: the kernel adds
// two numbers of the form 2^n by raising the larger by one (cm_ack_timeout), once
// at each end.
const maxAckDelay = 2

// cmAckTimeout proposes timeouts above every device's own delay.
func cmAckTimeout(c *Case) {
	for _, code := range []uint8{17, 19} {
		mb := c.B.cm()
		k := &conn{ma: c.A.cm(), mb: mb, ackTimeout: code}
		_, at := mb.listen(0)
		c.dialTo(k, at, "", "")
		for _, q := range []*QP{k.a, k.b} {
			attr, err := q.Query()
			c.must(err, "query_qp")
			if attr.Timeout < code || attr.Timeout > code+maxAckDelay {
				c.failf("of code %d for the ACK timeout came %d at %s", code, attr.Timeout, q.end.name)
			}
		}
	}
}

func cmAckTimeoutRange(c *Case) {
	id := c.A.cm().id(0)
	for _, code := range []uint8{0, 32, 255} {
		c.refused(id.SetAckTimeout(code), "a code that is no time", verbs.ErrInvalid)
	}
	c.must(id.SetAckTimeout(31), "set_option with the largest code")
}
