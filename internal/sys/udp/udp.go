package udp

import (
	"errors"
	"net/netip"
)

// MaxBatch is the largest number of datagrams of one call.
const MaxBatch = 64

// MaxJoined is the largest payload of joined datagrams in bytes: that of one packet of IPv6.
const MaxJoined = 1<<16 - 1 - 8

// Options are the settings of a socket.
type Options struct {
	// ReceiveBuffer is the size in bytes of the receive buffer, as far as the system grants it.
	ReceiveBuffer int
	// Join lets the system send neighboring datagrams of one length to one peer as one message, and receive
	// datagrams joined (In.Each). The identification of IPv4 counts up over joined ones. It has no effect
	// on a system without that function.
	//
	// Implements: UDP_SEGMENT, UDP_GRO (udp(7)).
	Join bool
	// Fragment has the socket go on in IP fragments when the path no longer carries its datagrams whole: from the
	// first one that the system refuses as too long, all that are longer than the known path. Without it such a
	// datagram is refused ([ErrTooLong]). The portable socket does as its system does.
	//
	// Implements: IP_MTU_DISCOVER (ip(7)), IPV6_MTU_DISCOVER (ipv6(7)).
	Fragment bool
	// Refusals has the socket learn of destinations that have no socket (Refused). Any peer can cause such reports, by
	// closing its socket, and each costs a datagram and a system call; so only a socket that asks needs them.
	//
	// Implements: IP_RECVERR (ip(7)), IPV6_RECVERR (ipv6(7)).
	Refusals bool
	// Only6 has the unspecified IPv6 address stand for the addresses of IPv6 alone. Then another socket can have the
	// port for those of IPv4.
	//
	// Implements: IPV6_V6ONLY (ipv6(7)).
	Only6 bool
}

// ErrTooLong means that a datagram is longer than the interface or the known path carries, or with
// [Options.Fragment] than UDP does.
var ErrTooLong = errors.New("udp: datagram longer than the path carries")

// Out is a datagram to send.
type Out struct {
	To netip.AddrPort
	// From is the address to send from, of a socket at an unspecified one; zero: the system's choice.
	From netip.Addr
	// TOS is the type of service (IPv4) or traffic class (IPv6). The portable socket sends 0.
	//
	// Implements: IP_TOS (ip(7)), IPV6_TCLASS (RFC 3542, 6.5).
	TOS uint8
	// Data is the payload. The call only reads it.
	Data []byte
}

// Buffer is a socket's receive buffer.
type Buffer struct {
	Size    int    // in bytes, as the system counts them: with its overhead; 0 if it does not report it
	Dropped uint64 // datagrams that found it full; joined ones count as one
}

// In is a datagram received.
type In struct {
	// Buf is the memory for the payload, set by the caller, and N the length of the payload. What
	// does not fit is lost, and Cut set.
	Buf []byte
	N   int
	Cut bool
	// Each is the length of every joined datagram but the last, which may be shorter; 0 for a single one.
	Each int
	From netip.AddrPort
	// To is the address that the datagram was sent to, if the socket is at an unspecified one and the
	// system reports it.
	To netip.Addr
}
