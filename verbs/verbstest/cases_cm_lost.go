package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// Each message of the handshake is lost once, in either direction.
func cmLost(c *Case) {
	for _, from := range []*End{c.A, c.B} {
		to := c.B
		if from == c.B {
			to = c.A
		}
		for nth := uint64(1); nth <= 3; nth++ {
			c.fault(from, to, Fault{Drop: []uint64{nth}})
			k := c.dial("ask", "answer")
			if !startsWith(k.request.Conn.PrivateData, "ask") || !startsWith(k.atA.Conn.PrivateData, "answer") {
				c.failf("private data was lost with a message")
			}
			k.b.recv(RR{id: 1})
			k.a.send(sendOf(2))
			k.b.received(k.b.rcq.one(), 1, verbs.WCRecv, 0)
			k.mb.quiet("a repeated message is no second request")
			c.pair.Caps.Faults.Heal()
		}
	}
}

func cmLostDisconnect(c *Case) {
	for _, from := range []*End{c.A, c.B} {
		to := c.B
		if from == c.B {
			to = c.A
		}
		k := c.dial("", "")
		c.fault(from, to, Fault{Drop: []uint64{1}})
		c.must(k.ida.Disconnect(), "disconnect")
		k.mb.take(verbs.CMDisconnected)
		k.mb.agrees(k.idb)
		k.ma.take(verbs.CMDisconnected)
		c.bothDead(k.a, k.b)
		c.pair.Caps.Faults.Heal()
	}
}

// An event of the identifier is queued when it is migrated to its own channel.
func cmMigrateHome(c *Case) {
	k := c.dial("", "")
	c.must(k.ida.Disconnect(), "disconnect")
	c.settle() // B has the event queued
	c.must(k.idb.Migrate(k.mb.ch), "migrate_id to the channel where it is")
	k.mb.take(verbs.CMDisconnected)
	k.mb.agrees(k.idb)
	k.ma.take(verbs.CMDisconnected)
}
