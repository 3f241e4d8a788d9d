package cm

import "fmt"

// EventKind is the kind of an event of a connection.
type EventKind uint8

// Values of EventKind. Terminal events are the last of their connection.
const (
	// EvRequest: a REQ for a Listener. The consumer answers with Accept, Reject or Close.
	EvRequest EventKind = iota + 1
	// EvReply: the peer accepted. The consumer readies its queue pair and calls SendRTU, or Close.
	EvReply
	// EvEstablished: the passive side may send.
	EvEstablished
	// EvRejected: refused by the peer, or ended by it before it was established. Terminal.
	EvRejected
	// EvUnreachable: no answer to REQ, REP or SIDR_REQ. Terminal.
	EvUnreachable
	// EvDisconnected: ended by either side. When the peer initiated it, the state is DREQ_RCVD and
	// the consumer calls SendDREP.
	EvDisconnected
	// EvTimewaitExit: the connection's numbers may be reused. Terminal.
	EvTimewaitExit
	// EvSIDRRequest: a query for a Listener. The consumer answers with Answer or Close.
	EvSIDRRequest
	// EvSIDRReply: the answer to a local query. Terminal.
	EvSIDRReply
)

var eventNames = [...]string{"", "REQUEST", "REPLY", "ESTABLISHED", "REJECTED", "UNREACHABLE", "DISCONNECTED", "TIMEWAIT_EXIT", "SIDR_REQUEST", "SIDR_REPLY"}

// String returns the name of the event.
func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is an event of Conn. The message that caused it is set; it belongs to the receiver of the
// event.
type Event struct {
	Kind     EventKind
	Conn     *Conn
	Listener *Listener // EvRequest, EvSIDRRequest
	REQ      *REQ      // EvRequest
	REP      *REP      // EvReply
	REJ      *REJ      // EvRejected by the peer
	SIDRREQ  *SIDRREQ  // EvSIDRRequest
	SIDRREP  *SIDRREP  // EvSIDRReply
	Timeout  bool      // EvDisconnected: the peer did not answer
}
