//go:build linux && !portable

package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReportsTo reports whether In.To is set and Out.From respected.
const ReportsTo = true

// Socket is a bound UDP socket. Send may be called by one goroutine at a time, and so may Recv.
type Socket struct {
	fd        int
	is4       bool
	any       bool // at an unspecified address: datagrams bring their own
	connected bool // sends without passing the destination, which the system knows
	aside     bool // connected to itself, and only sends: see Aside
	local     netip.AddrPort
	zone      uint32 // of a link-local address
	join      bool   // send datagrams of one length joined; the sender clears it when the system cannot
	// joinMost is the length in bytes of the longest datagrams that are joined. The system refuses to join those
	// that it would send in fragments. fragment is Options.Fragment until the socket sends in fragments; fragments is
	// set from then on. All are the sender's.
	joinMost            int
	fragment, fragments bool
	// closed is set by Close. It publishes nothing.
	closed atomic.Bool

	// refusals is set when the error queue may hold something. Send and Recv set it, Refused clears it.
	// It publishes nothing.
	refusals atomic.Bool

	out    batch
	in     batch
	joined bool // the last datagram received was a joined one; Recv's
}

// Listen opens a socket at local, whose port may be 0 for any free one. The unspecified IPv6 address
// stands for all addresses of both families, unless Options.Only6 is set. The caller closes it.
//
// Errors: syscall.EADDRINUSE if another socket has the address, and the system's others.
//
// Implements: socket(2), bind(2).
func Listen(local netip.AddrPort, opt Options) (*Socket, error) { return open(local, opt, false) }

// Connect opens a socket that is connected to a peer, at an address of this machine and the port of s. From
// then on the new socket receives the peer's datagrams, and s those of other senders. The new socket may also
// receive datagrams that other senders sent before Connect returned. Out.To must be the peer. Any goroutine
// may call Connect, one at a time and not during Close; it does not block. The caller closes the new socket.
//
// Errors: the system's.
//
// Implements: SO_REUSEPORT, SO_REUSEADDR (socket(7); kernel net/ipv4/udp.c, udp_lib_lport_inuse), connect(2).
func (s *Socket) Connect(local netip.Addr, to netip.AddrPort, opt Options) (*Socket, error) {
	c, err := s.beside(local, to, opt)
	if err == nil {
		c.connected = true
	}
	return c, err
}

// Aside opens a socket with a send buffer of its own, at the address and port of s, only to send to any destination. It
// receives what that very address and port send. It may have taken datagrams to s that arrived before Aside returned: Recv
// returns them. The rest is as with Connect.
//
// Errors: the system's.
//
// Implements: sendmsg(2) with an address on a connected socket (udp(7)).
func (s *Socket) Aside(opt Options) (*Socket, error) {
	self := s.local.Addr()
	switch {
	case s.any && opt.Only6:
		self = netip.IPv6Loopback()
	case s.any: // there may be no IPv6
		self = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	c, err := s.beside(s.local.Addr(), netip.AddrPortFrom(self, s.local.Port()), opt)
	if err == nil {
		c.aside = true
	}
	return c, err
}

// beside opens a socket at the port of s that receives from one peer only.
func (s *Socket) beside(local netip.Addr, from netip.AddrPort, opt Options) (*Socket, error) {
	// Both sockets need SO_REUSEPORT while the second one is bound. Then they give it up: with it on one of
	// them, another process of this user could bind to the port and take datagrams. Connected sockets let
	// each other pass by SO_REUSEADDR, which s never has.
	if err := s.share(1); err != nil {
		return nil, err
	}
	c, err := open(netip.AddrPortFrom(local, s.local.Port()), opt, true)
	if err == nil {
		err = errors.Join(c.sameNetwork(s), c.connect(from), c.share(0))
	}
	err = errors.Join(err, s.share(0))
	if err != nil && c != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, err
}

// sameNetwork returns an error if o is in another network name space. A new socket is in that of the calling
// thread.
func (s *Socket) sameNetwork(o *Socket) error {
	a, _ := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE) // 0 before Linux 5.14
	b, _ := unix.GetsockoptUint64(o.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if a != b {
		return fmt.Errorf("udp: %v is in another network name space", o.local)
	}
	return nil
}

// share sets SO_REUSEPORT to on.
func (s *Socket) share(on int) error {
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, on)
}

func (s *Socket) connect(to netip.AddrPort) error {
	if err := unix.Connect(s.fd, s.sockaddr(to)); err != nil {
		return fmt.Errorf("udp: connecting %v to %v: %w", s.local, to, err)
	}
	return nil
}

// sockaddr returns an address in the form of the socket's family.
func (s *Socket) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if s.is4 {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().Unmap().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: s.zone}
}

// open opens a socket. With shared it may be bound to the port of a socket that permits it: see Connect.
func open(local netip.AddrPort, opt Options, shared bool) (*Socket, error) {
	addr := local.Addr().Unmap()
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("udp: socket: %w", err)
	}
	s := &Socket{fd: fd, is4: addr.Is4(), any: addr.IsUnspecified(), joinMost: MaxJoined, fragment: opt.Fragment}
	if shared {
		err = errors.Join(s.share(1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	}
	if err = errors.Join(err, s.bind(netip.AddrPortFrom(addr, local.Port()), opt)); err != nil {
		return nil, errors.Join(fmt.Errorf("udp: %v: %w", local, err), unix.Close(fd))
	}
	return s, nil
}

func (s *Socket) bind(local netip.AddrPort, opt Options) error {
	type option struct{ level, option, value int }
	any, only6, refusals := 0, 1, 0
	if opt.Refusals {
		refusals = 1
	}
	if s.any {
		any = 1
		if !opt.Only6 {
			only6 = 0
		}
	}
	// In a socket of IPv6 the options of IPv4 apply to that family.
	options := []option{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO},
		{unix.IPPROTO_IP, unix.IP_RECVERR, refusals},
	}
	if s.is4 {
		options = append(options, option{unix.IPPROTO_IP, unix.IP_PKTINFO, any})
	} else {
		var err error
		if s.zone, err = scope(local.Addr()); err != nil {
			return err
		}
		options = append(options,
			option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, refusals},
			option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only6},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, any},
			// Linux rdma_rxe sends no checksum over IPv6 (rxe_net.c, prepare_udp_hdr); the ICRC covers more.
			option{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1},
		)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(s.fd, o.level, o.option, o.value); err != nil {
			return fmt.Errorf("option %d of level %d: %w", o.option, o.level, err)
		}
	}
	// Beyond the system's limit only with privilege; less than asked for is no error.
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, opt.ReceiveBuffer) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, opt.ReceiveBuffer)
	}
	if opt.Join {
		_, err := unix.GetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT)
		s.join = err == nil                                         // Linux before 4.18 would ignore the control message
		_ = unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1) // unknown before Linux 5.0
	}
	if err := unix.Bind(s.fd, s.sockaddr(local)); err != nil {
		return err
	}
	bound, err := unix.Getsockname(s.fd)
	if err != nil {
		return err
	}
	switch b := bound.(type) {
	case *unix.SockaddrInet4:
		s.local = netip.AddrPortFrom(netip.AddrFrom4(b.Addr), uint16(b.Port))
	case *unix.SockaddrInet6:
		s.local = netip.AddrPortFrom(netip.AddrFrom16(b.Addr).WithZone(local.Addr().Zone()), uint16(b.Port))
	}
	return nil
}

// startFragments has the system send datagrams in fragments. Of the modes of path MTU discovery only this one keeps to
// the MTU of the route and yet sends longer datagrams.
func (s *Socket) startFragments() (ok bool) {
	if !s.fragment {
		return false
	}
	err := unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	if !s.is4 {
		err = errors.Join(err, unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT))
	}
	s.fragment, s.fragments = false, err == nil
	return s.fragments
}

// Local returns the address that the socket is bound to.
func (s *Socket) Local() netip.AddrPort { return s.local }

// FD returns the descriptor, which polls readable while there are datagrams; for a poller.
func (s *Socket) FD() int { return s.fd }

// Notify does nothing: the socket announces datagrams by its descriptor. See sys.Source.
func (s *Socket) Notify(func()) {}

// Refused takes one report from the error queue; ok is false if there is none, or without Options.Refusals. If the
// report says that no socket has the port of a datagram, to is the datagram's destination; otherwise to is not
// valid. The report quotes the beginning of the datagram; Refused copies n bytes of it, or none, to quoted. Any
// machine may send reports, with any quotation. The socket keeps some reports until they are
// taken. Refused may be called by the goroutine that may call Recv; it does not block.
//
// Implements: IP_RECVERR, MSG_ERRQUEUE (ip(7)).
func (s *Socket) Refused(quoted []byte) (to netip.AddrPort, n int, ok bool) {
	if !s.refusals.Load() {
		return to, 0, false
	}
	const controlLen = 256 // struct sock_extended_err and an address, with their headers
	var control [controlLen]byte
	n, c, _, from, err := unix.Recvmsg(s.fd, quoted, control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		s.refusals.Store(false)
		return to, 0, false
	}
	all, _ := unix.ParseSocketControlMessage(control[:c]) // after an error none
	for _, m := range all {
		// Its first field is the errno.
		if len(m.Data) < 4 || m.Header.Type != unix.IP_RECVERR && m.Header.Type != unix.IPV6_RECVERR || binary.NativeEndian.Uint32(m.Data) != uint32(unix.ECONNREFUSED) {
			continue
		}
		switch a := from.(type) {
		case *unix.SockaddrInet4:
			to = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *unix.SockaddrInet6:
			to = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
		}
	}
	return to, n, true
}

// Buffer returns the state of the receive buffer. Any goroutine may call it, but not during Close; it enters
// the kernel.
//
// Implements: SO_MEMINFO (kernel include/uapi/linux/sock_diag.h); zero before Linux 4.12.
func (s *Socket) Buffer() Buffer {
	const (
		receiveBuffer = 1 // SK_MEMINFO_RCVBUF
		drops         = 8 // SK_MEMINFO_DROPS
	)
	var info [drops + 1]uint32
	n := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 || n < uint32(unsafe.Sizeof(info)) {
		return Buffer{}
	}
	return Buffer{Size: int(info[receiveBuffer]), Dropped: uint64(info[drops])}
}

// Close closes the socket. Idempotent; not during another call, and after its poller has given it
// up.
func (s *Socket) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	return unix.Close(s.fd)
}
