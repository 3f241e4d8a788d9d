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
	fd    int
	is4   bool
	any   bool // at an unspecified address: datagrams bring their own
	local netip.AddrPort
	zone  uint32 // of a link-local address
	// closed is set by Close. It publishes nothing.
	closed atomic.Bool

	// refusals is set when the error queue may hold something. Send and Recv set it, Refused clears it.
	// It publishes nothing.
	refusals atomic.Bool

	out, in batch
	iovs    []unix.Iovec // of out, in order
}

// message is struct mmsghdr.
type message struct {
	hdr unix.Msghdr
	n   uint32
}

// batch is the memory of one call.
type batch struct {
	msgs  [MaxBatch]message
	addrs [MaxBatch]unix.RawSockaddrInet6 // large enough for IPv4
	iovs  [MaxBatch]unix.Iovec            // of in
	infos [MaxBatch]packetInfo
}

// packetInfo is a control message with the local address of a datagram.
//
// Implements: struct in6_pktinfo (ipv6(7)) and struct in_pktinfo (ip(7)), behind struct cmsghdr.
type packetInfo struct {
	hdr   unix.Cmsghdr
	addr6 [16]byte // of in6_pktinfo; in_pktinfo has ifindex, local address, header address
	index uint32
	_     [4]byte
}

// Listen opens a socket at local, whose port may be 0 for any free one. The unspecified IPv6 address
// stands for all addresses of both families. receiveBuffer is the size in
// bytes of its receive buffer, as far as the system grants it. The caller closes it.
//
// Errors: syscall.EADDRINUSE if another socket has the address, and the system's others.
//
// Implements: socket(2), bind(2).
func Listen(local netip.AddrPort, receiveBuffer int) (*Socket, error) {
	addr := local.Addr().Unmap()
	family := unix.AF_INET6
	if addr.Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("udp: socket: %w", err)
	}
	s := &Socket{fd: fd, is4: addr.Is4(), any: addr.IsUnspecified()}
	if err := s.bind(netip.AddrPortFrom(addr, local.Port()), receiveBuffer); err != nil {
		return nil, errors.Join(fmt.Errorf("udp: %v: %w", local, err), unix.Close(fd))
	}
	return s, nil
}

func (s *Socket) bind(local netip.AddrPort, receiveBuffer int) error {
	var sa unix.Sockaddr
	type option struct{ level, option, value int }
	any := 0
	if s.any {
		any = 1
	}
	// In a socket of IPv6 the options of IPv4 apply to that family.
	options := []option{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO},
		{unix.IPPROTO_IP, unix.IP_RECVERR, 1},
	}
	if s.is4 {
		options = append(options, option{unix.IPPROTO_IP, unix.IP_PKTINFO, any})
		sa = &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()}
	} else {
		var err error
		if s.zone, err = scope(local.Addr()); err != nil {
			return err
		}
		sa = &unix.SockaddrInet6{Port: int(local.Port()), Addr: local.Addr().As16(), ZoneId: s.zone}
		options = append(options,
			option{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO},
			option{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1},
			option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1 - any},
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
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
	}
	if err := unix.Bind(s.fd, sa); err != nil {
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

// Local returns the address that the socket is bound to.
func (s *Socket) Local() netip.AddrPort { return s.local }

// FD returns the descriptor, which polls readable while there are datagrams; for a poller.
func (s *Socket) FD() int { return s.fd }

// Notify does nothing: the socket announces datagrams by its descriptor. See sys.Source.
func (s *Socket) Notify(func()) {}

// Send sends datagrams, at most MaxBatch, and returns how many of them; fewer without an error if the
// send buffer is full. The error is that of the first one not sent: [ErrTooLong], or the system's. It
// does not block and allocates nothing once its tables have grown.
//
// Implements: sendmmsg(2).
func (s *Socket) Send(ms []Out) (n int, err error) {
	b := &s.out
	s.iovs = s.iovs[:0]
	defer func() { clear(s.iovs) }() // keeps no memory of the caller's
	for i := range ms {
		for _, p := range ms[i].Parts {
			if len(p) > 0 {
				v := unix.Iovec{Base: &p[0]}
				v.SetLen(len(p))
				s.iovs = append(s.iovs, v)
			}
		}
	}
	at := 0
	for i := range ms {
		h := &b.msgs[i].hdr
		first := at
		for _, p := range ms[i].Parts {
			if len(p) > 0 {
				at++
			}
		}
		h.Iov = nil
		if at > first {
			h.Iov = &s.iovs[first]
		}
		h.SetIovlen(at - first)
		h.Name, h.Namelen = s.putAddr(&b.addrs[i], ms[i].To)
		h.Control = nil
		h.SetControllen(0)
		if s.any && ms[i].From.IsValid() {
			h.Control = (*byte)(unsafe.Pointer(&b.infos[i]))
			h.SetControllen(s.putInfo(&b.infos[i], ms[i].From))
		}
	}
	for {
		got, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.msgs)), uintptr(len(ms)), 0, 0, 0)
		switch errno {
		case 0:
			return int(got), nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, nil
		case unix.EMSGSIZE:
			s.refusals.Store(true) // it is in the error queue, too
			return 0, ErrTooLong
		}
		if s.refusals.Swap(true) {
			return 0, errno
		} // else it may be of an earlier datagram: see Refused
	}
}

// Recv receives datagrams into ms, at most MaxBatch, and returns how many; 0 without an error if there
// are none. It does not block and allocates nothing.
//
// Implements: recvmmsg(2).
func (s *Socket) Recv(ms []In) (n int, err error) {
	b := &s.in
	for i := range ms {
		b.iovs[i].Base = &ms[i].Buf[0]
		b.iovs[i].SetLen(len(ms[i].Buf))
		h := &b.msgs[i].hdr
		h.Iov = &b.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&b.addrs[i]))
		h.Namelen = uint32(unsafe.Sizeof(b.addrs[i]))
		if s.any {
			h.Control = (*byte)(unsafe.Pointer(&b.infos[i]))
			h.SetControllen(int(unsafe.Sizeof(b.infos[i])))
		}
	}
	for {
		got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&b.msgs)), uintptr(len(ms)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, nil
		default:
			if s.refusals.Swap(true) {
				return 0, errno
			}
			continue // it may be of a datagram sent earlier: see Refused
		}
		for i := range ms[:got] {
			m := &b.msgs[i]
			ms[i].N, ms[i].Cut, ms[i].From = int(m.n), m.hdr.Flags&unix.MSG_TRUNC != 0, s.addr(&b.addrs[i])
			if s.any {
				ms[i].To = b.infos[i].local(int(m.hdr.Controllen))
			}
		}
		return int(got), nil
	}
}

// Refused returns the destination of a datagram that its receiver's system refused, because no socket has
// the port; ok is false if there is none. The socket keeps some until they are taken. It may be called by
// the goroutine that may call Recv; it does not block.
//
// Implements: IP_RECVERR, MSG_ERRQUEUE (ip(7)).
func (s *Socket) Refused() (to netip.AddrPort, ok bool) {
	if !s.refusals.Load() {
		return to, false
	}
	const controlLen = 256 // struct sock_extended_err and an address, with their headers
	var control [controlLen]byte
	var none [1]byte
	for {
		_, n, _, from, err := unix.Recvmsg(s.fd, none[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			s.refusals.Store(false)
			return to, false
		}
		all, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			continue
		}
		for _, m := range all {
			// Its first field is the errno.
			if len(m.Data) < 4 || m.Header.Type != unix.IP_RECVERR && m.Header.Type != unix.IPV6_RECVERR || binary.NativeEndian.Uint32(m.Data) != uint32(unix.ECONNREFUSED) {
				continue
			}
			switch a := from.(type) {
			case *unix.SockaddrInet4:
				return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
			case *unix.SockaddrInet6:
				return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), true
			}
		}
	}
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

// putInfo writes a control message for the address to send from, and returns its length in bytes.
func (s *Socket) putInfo(p *packetInfo, from netip.Addr) int {
	if s.is4 {
		*p = packetInfo{hdr: unix.Cmsghdr{Level: unix.IPPROTO_IP, Type: unix.IP_PKTINFO}}
		a := from.Unmap().As4()
		copy(p.addr6[4:], a[:]) // behind the interface, which is left open
		p.hdr.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		return unix.CmsgSpace(unix.SizeofInet4Pktinfo)
	}
	*p = packetInfo{hdr: unix.Cmsghdr{Level: unix.IPPROTO_IPV6, Type: unix.IPV6_PKTINFO}, addr6: from.As16()}
	p.hdr.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
	return unix.CmsgSpace(unix.SizeofInet6Pktinfo)
}

// local returns the address in a control message of n bytes.
func (p *packetInfo) local(n int) netip.Addr {
	switch {
	case n >= unix.CmsgLen(unix.SizeofInet4Pktinfo) && p.hdr.Level == unix.IPPROTO_IP && p.hdr.Type == unix.IP_PKTINFO:
		return netip.AddrFrom4([4]byte(p.addr6[4:8]))
	case n >= unix.CmsgLen(unix.SizeofInet6Pktinfo) && p.hdr.Level == unix.IPPROTO_IPV6 && p.hdr.Type == unix.IPV6_PKTINFO:
		return netip.AddrFrom16(p.addr6).Unmap()
	}
	return netip.Addr{}
}

// putAddr writes a socket address, and returns what struct msghdr has of it.
func (s *Socket) putAddr(to *unix.RawSockaddrInet6, a netip.AddrPort) (*byte, uint32) {
	if s.is4 {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(to))
		*sa = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: netOrder(a.Port()), Addr: a.Addr().As4()}
		return (*byte)(unsafe.Pointer(sa)), uint32(unsafe.Sizeof(*sa))
	}
	*to = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: netOrder(a.Port()), Addr: a.Addr().As16()}
	if a.Addr().IsLinkLocalUnicast() {
		to.Scope_id = s.zone
	}
	return (*byte)(unsafe.Pointer(to)), uint32(unsafe.Sizeof(*to))
}

// addr reads a socket address.
func (s *Socket) addr(from *unix.RawSockaddrInet6) netip.AddrPort {
	if s.is4 {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), netOrder(sa.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(from.Addr).Unmap(), netOrder(from.Port))
}

// netOrder converts between host order and network order.
func netOrder(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// Close closes the socket. Idempotent; not during another call, and after its poller has given it
// up.
func (s *Socket) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	return unix.Close(s.fd)
}
