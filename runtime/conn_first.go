package runtime

import "github.com/verbena-rdma/verbena/runtime/internal/proto"

// On iWARP the accepting end of a connection must not send before a message of the dialing end has arrived
// (verbs.TransportIWARP). So on iWARP the dialing end of a managed connection begins with a frame of kind First,
// and the accepting end stays in connConnecting until this frame has arrived:
//
//	dialing end                        accepting end
//
//	ESTABLISHED ─────── First ───────> First  ┐ in any order
//	    │                          ESTABLISHED ┘
//	    v                                │
//	connOpen                             v
//	                                  connOpen
//
// Config.ConnectTimeout bounds this wait, too. The program of a raw connection has to send in this order by
// itself (Options.Raw).

// openIf opens a connection for which ESTABLISHED has arrived, unless it waits for the first frame. Holder only.
func (c *Conn) openIf() {
	if c.silent {
		return
	}
	if err := c.watchPeer(); err != nil {
		c.giveUp(err)
		return
	}
	if c.beginsWithFirst() && !c.accepting {
		// The frame takes the place of a credit update, so an update follows only after the peer has answered. It
		// is the first request: if it is not posted, the queue has failed, and so does the connection.
		c.postFrame(proto.Frame{Kind: proto.First})
		c.updateSent = true
	}
	c.opened()
}

// beginsWithFirst reports whether the dialing end begins with a First frame.
func (c *Conn) beginsWithFirst() bool { return c.rt.iWARP && !c.opts.Raw }

// heard processes the First frame of the dialing end. It returns an error if this end does not wait for one. Holder only.
func (c *Conn) heard() error {
	if !c.silent {
		return errFirst
	}
	c.silent = false
	if c.up && c.state == connConnecting {
		c.openIf()
	}
	return nil
}
