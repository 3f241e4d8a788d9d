//go:build linux && !portable

package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// message is struct mmsghdr.
type message struct {
	hdr unix.Msghdr
	n   uint32
}

// batch is the memory of one call.
type batch struct {
	msgs     [MaxBatch]message
	addrs    [MaxBatch]unix.RawSockaddrInet6 // large enough for IPv4
	iovs     [MaxBatch]unix.Iovec            // of each datagram
	controls [MaxBatch]control
	counts   [MaxBatch]int // of out: the datagrams of each message
}

// call makes the system call many for k messages, or one if it is a single message: that takes 0.2 µs less, 5 %
// of the time. It returns how many messages passed.
//
// With short the message is expected to be a single datagram: then the call usually takes a few microseconds, and it
// does not block. So the scheduler is not told of it, which saves 0.2 µs (BenchmarkSocket). Garbage collection
// waits for its end, which is later while the system drops datagrams with wrong checksums.
func (b *batch) call(many, one uintptr, fd, k int, short bool) (int, unix.Errno) {
	if k > 1 {
		n, _, errno := unix.Syscall6(many, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs)), uintptr(k), unix.MSG_DONTWAIT, 0, 0)
		return int(n), errno
	}
	var n uintptr
	var errno unix.Errno
	if short {
		n, _, errno = unix.RawSyscall(one, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs)), unix.MSG_DONTWAIT)
	} else {
		n, _, errno = unix.Syscall(one, uintptr(fd), uintptr(unsafe.Pointer(&b.msgs)), unix.MSG_DONTWAIT)
	}
	b.msgs[0].n = uint32(n)
	return 1, errno
}

// sendOne sends one datagram to the peer of a connected socket. sendto(2) takes 0.4 µs less than
// sendmsg(2), of 5 µs with the receipt (BenchmarkSocket). The scheduler is not told of it: see call.
func (s *Socket) sendOne(b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// Send sends datagrams, at least one and at most MaxBatch, and returns how many of them; fewer without an error if the
// send buffer is full. The error is that of the first one not sent: [ErrTooLong], or the system's. It
// does not block and allocates nothing.
//
// Implements: sendmmsg(2).
func (s *Socket) Send(ms []Out) (n int, err error) {
	one := len(ms) == 1 && s.connected && ms[0].TOS == 0
	join, unjoined, pending := s.join, unix.Errno(0), 0
	for {
		var k, got int
		var errno unix.Errno
		if one {
			k, got, errno = 1, 1, s.sendOne(ms[0].Data)
			s.out.counts[0] = 1
		} else {
			k = s.fill(ms, join)
			got, errno = s.out.call(unix.SYS_SENDMMSG, unix.SYS_SENDMSG, s.fd, k, s.out.counts[0] == 1)
		}
		switch {
		case errno == 0:
			if got < k {
				s.refusals.Store(true) // sendmmsg(2) takes the error of the next one off the socket
			}
			if unjoined == unix.EINVAL || unjoined == unix.EIO {
				s.join = false // for example because the system encrypts datagrams
			}
			for _, c := range s.out.counts[:got] {
				n += c
			}
			return n, nil
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return 0, nil
		case s.out.counts[0] > 1 && (errno == unix.EMSGSIZE || errno == unix.EINVAL || errno == unix.EIO):
			// Something is wrong with these datagrams, or the system cannot join them.
			join, unjoined = false, errno
			if s.fragments {
				s.joinMost, unjoined = len(ms[0].Data)-1, 0
			}
			s.refusals.Store(true)
			continue
		case errno == unix.EMSGSIZE:
			s.refusals.Store(true) // it is in the error queue, too
			if s.startFragments() {
				unjoined = 0 // nothing is wrong with joining
				continue
			}
			// A report that quotes the address to which an aside is connected is forged: nothing was sent there.
			if pending++; !s.aside || pending > 1 {
				return 0, ErrTooLong
			}
			continue
		}
		// The first may be of an earlier datagram: see Refused. ECONNREFUSED always is.
		s.refusals.Store(true)
		if pending++; pending > 1 && errno != unix.ECONNREFUSED || pending > maxPending {
			return 0, errno
		}
	}
}

// maxPending is how many reports about earlier datagrams a call passes over. Strangers can cause more.
const maxPending = 8

// fill prepares the messages for datagrams, and returns how many messages. With join, neighbors of one length to
// one peer are one message.
func (s *Socket) fill(ms []Out, join bool) (k int) {
	b := &s.out
	for i := range ms {
		b.iovs[i].Base = unsafe.SliceData(ms[i].Data)
		b.iovs[i].SetLen(len(ms[i].Data))
	}
	for i := 0; i < len(ms); k++ {
		each := len(ms[i].Data)
		n, total := 1, each
		for join && each > 0 && each <= s.joinMost && i+n < len(ms) && ms[i+n].To == ms[i].To && ms[i+n].From == ms[i].From && ms[i+n].TOS == ms[i].TOS {
			size := len(ms[i+n].Data)
			if total += size; size == 0 || size > each || total > min(maxJoined4, maxSegments*each-maxHeaders) {
				break
			}
			n++
			if size < each {
				break
			}
		}
		h := &b.msgs[k].hdr
		h.Iov = &b.iovs[i]
		h.SetIovlen(n)
		h.Name, h.Namelen = nil, 0
		if !s.connected {
			h.Name, h.Namelen = s.putAddr(&b.addrs[k], ms[i].To)
		}
		c := &b.controls[k]
		c.n = 0
		if s.any && ms[i].From.IsValid() {
			c.addFrom(ms[i].From, s.is4)
		}
		if ms[i].TOS != 0 {
			c.addTOS(ms[i].TOS, ms[i].To.Addr().Is4())
		}
		if n > 1 {
			c.addEach(each)
		}
		h.Control = nil
		if c.n > 0 {
			h.Control = &c.bytes()[0]
		}
		h.SetControllen(c.n)
		b.counts[k] = n
		i += n
	}
	return k
}

const (
	// maxJoined4 is the largest payload of joined datagrams in bytes: that of one packet of IPv4.
	maxJoined4 = 1<<16 - 1 - 20 - 8
	// maxSegments is the largest number of joined datagrams (UDP_MAX_SEGMENTS), and maxHeaders the bytes of
	// headers that Linux before 5.16 counts as if they were payload of theirs.
	maxSegments, maxHeaders = 64, 40 + 8
)

// Recv receives datagrams into ms, which has from 1 to MaxBatch, and returns how many; 0 without an error if there
// are none. With Options.Join the system may join datagrams up to MaxJoined; what does not fit Buf is cut. It
// does not block and allocates nothing.
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
		h.Control = &b.controls[i].bytes()[0]
		h.SetControllen(controlLen)
	}
	for pending := 0; ; {
		got, errno := b.call(unix.SYS_RECVMMSG, unix.SYS_RECVMSG, s.fd, len(ms), !s.joined)
		switch errno {
		case 0:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, nil
		default:
			s.refusals.Store(true)
			if pending++; pending > maxPending {
				return 0, errno
			}
			continue // it may be of a datagram sent earlier: see Refused
		}
		for i := range ms[:got] {
			m, in := &b.msgs[i], &ms[i]
			in.N, in.Cut, in.From = int(m.n), m.hdr.Flags&unix.MSG_TRUNC != 0, s.addr(&b.addrs[i])
			in.To, in.Each = b.controls[i].parse(int(m.hdr.Controllen))
			s.joined = in.Each > 0
		}
		return got, nil
	}
}
