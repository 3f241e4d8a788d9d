package runtime

import (
	"math/bits"

	"github.com/verbena-rdma/verbena/verbs"
)

// A large message does not fit into a receive of the peer. The peer reads it from the memory of the sender
// when its program receives:
//
//	sender                                   receiver
//	binds a memory window to the message
//	sends a Large frame ───────────────────> the message takes its place in the order of arrival
//	                                         allocates a buffer (Options.RecvBudget)
//	      <──────────────────────── READ ─── reads the message
//	ends the operation <───────── Fetched ── sends a SEND_WITH_INV, which unbinds the window
//	                                         delivers the message, and then those that came after it
//
// The window opens exactly the bytes of the message, only to this peer, and only until the answer. So the peer
// never gets a key of a region.
//
// A Large frame uses a credit, as any message does. The answer uses none: the sender has reserved a receive
// for it before it sends the frame. So two programs that send large messages to each other, and receive
// only afterwards, do not wait for each other, as long as the messages fit into the budget.

const (
	// maxLarge is the largest number of large messages of a connection, in each direction, that are not
	// answered. While one is read, the next must be on its way; more than a few do not make it faster. The
	// sender keeps a receive for each.
	maxLarge = 4
	// maxLargeMessage is the largest value of Options.MaxMessage.
	maxLargeMessage = 1 << 30
)

// windowed reports whether the device has what large messages need: windows of type 2, and the SEND_WITH_INV
// that unbinds them.
func windowed(attr *verbs.DeviceAttr) bool {
	return attr.MaxMW > 0 && attr.Caps&(verbs.CapMemWindow2A|verbs.CapMemWindow2B) != 0 && attr.Opcodes.Has(verbs.WRSendWithInv)
}

// carriesLarge reports whether a connection with the options o can send and receive large messages.
func (rt *Runtime) carriesLarge(o Options) bool {
	return rt.mem.windows && !o.Raw && o.kind == 0 && o.MaxMessage > o.MessageSize
}

// largeBits returns the binary logarithm of the largest message that this end receives, rounded down, or 0 if it
// receives no large messages. A READ carries as much as a message of the port.
func (c *Conn) largeBits() uint8 {
	o := c.opts
	most := min(o.MaxMessage, c.oneWR) // the former is a power of two
	if !c.rt.carriesLarge(o) || most <= o.MessageSize {
		return 0
	}
	if n := bits.Len(uint(most)) - 1; 1<<n > o.MessageSize {
		return uint8(n)
	}
	return 0
}

// bindable reports whether a window can be bound to s, which is not empty.
func (s Slice) bindable() bool {
	return s.lease != nil && s.deviceLen == 0 && s.access&fetched == 0
}
