//go:build !linux || portable

package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// ReportsTo reports whether In.To is set and Out.From respected.
const ReportsTo = false

// Socket is a bound UDP socket. Send may be called by one goroutine at a time, and so may Recv.
type Socket struct {
	conn  *net.UDPConn
	local netip.AddrPort

	// announce is the function passed to Notify last, nil for none. Written by Notify, read by the
	// reading goroutine after it queued a datagram.
	announce atomic.Pointer[func()]
	done     chan struct{} // closed when that goroutine has ended

	mu    sync.Mutex
	queue []packet // read and not yet received; at most maxQueued
	free  [][]byte // buffers of received ones
	err   error    // the one that ended reading
	lost  uint64   // that found the queue full
}

type packet struct {
	b    []byte
	from netip.AddrPort
}

const (
	// maxQueued is the number of datagrams that wait for Recv; others are lost.
	maxQueued = 512
	// maxDatagram is the largest UDP payload.
	maxDatagram = 1<<16 - 1
)

// Listen opens a socket at local, whose port may be 0 for any free one. The unspecified IPv6 address
// stands for all addresses of both families, unless Options.Only6 is set. The caller closes it.
func Listen(local netip.AddrPort, opt Options) (*Socket, error) {
	network := "udp6"
	switch a := local.Addr().Unmap(); {
	case a.Is4():
		network = "udp4"
	case a.IsUnspecified() && !opt.Only6:
		network = "udp"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, fmt.Errorf("udp: %v: %w", local, err)
	}
	_ = conn.SetReadBuffer(opt.ReceiveBuffer) // less than asked for is no error
	s := &Socket{conn: conn, local: unmap(conn.LocalAddr().(*net.UDPAddr).AddrPort()), done: make(chan struct{})}
	go s.read()
	return s, nil
}

// Connect is not possible: it returns [errors.ErrUnsupported].
func (s *Socket) Connect(netip.Addr, netip.AddrPort, Options) (*Socket, error) {
	return nil, errors.ErrUnsupported
}

// Aside is not possible: it returns [errors.ErrUnsupported].
func (s *Socket) Aside(Options) (*Socket, error) { return nil, errors.ErrUnsupported }

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// read is the reading goroutine. It ends when the socket is closed.
func (s *Socket) read() {
	defer close(s.done)
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		s.mu.Lock()
		if err != nil {
			s.err = err
		} else if len(s.queue) < maxQueued {
			var b []byte
			if i := len(s.free) - 1; i >= 0 {
				b, s.free = s.free[i][:0], s.free[:i]
			}
			s.queue = append(s.queue, packet{append(b, buf[:n]...), unmap(from)})
		} else {
			s.lost++
		}
		s.mu.Unlock()
		if f := s.announce.Load(); f != nil {
			(*f)()
		}
		if err != nil {
			return
		}
	}
}

// Local returns the address that the socket is bound to.
func (s *Socket) Local() netip.AddrPort { return s.local }

// FD returns -1: the socket announces datagrams. See sys.Source.
func (s *Socket) FD() int { return -1 }

// Notify sets the function that is called, from another goroutine, for every datagram, and once
// immediately; nil removes it. See sys.Source.
func (s *Socket) Notify(announce func()) {
	if announce == nil {
		s.announce.Store(nil)
		return
	}
	s.announce.Store(&announce)
	announce()
}

// Send sends datagrams and returns how many of them. The error is that of the first one not sent.
func (s *Socket) Send(ms []Out) (n int, err error) {
	for i := range ms {
		if _, err := s.conn.WriteToUDPAddrPort(ms[i].Data, ms[i].To); err != nil {
			return i, err
		}
	}
	return len(ms), nil
}

// Recv receives datagrams into ms and returns how many; 0 without an error if there are none. It
// does not block.
func (s *Socket) Recv(ms []In) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n < min(len(ms), len(s.queue)) {
		p := s.queue[n]
		ms[n].N, ms[n].From = copy(ms[n].Buf, p.b), p.from
		ms[n].Cut = ms[n].N < len(p.b)
		s.free = append(s.free, p.b)
		n++
	}
	s.queue = append(s.queue[:0], s.queue[n:]...)
	if n == 0 {
		return 0, s.err
	}
	return n, nil
}

// Buffer returns how many datagrams were lost because Recv was not called. Any goroutine may call it.
func (s *Socket) Buffer() Buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Buffer{Dropped: s.lost}
}

// Refused returns false: package net does not report what a receiver's system refuses.
func (s *Socket) Refused([]byte) (to netip.AddrPort, n int, ok bool) { return to, 0, false }

// Close closes the socket and waits for its goroutine. Idempotent.
func (s *Socket) Close() error {
	select {
	case <-s.done:
		return nil
	default:
	}
	err := s.conn.Close()
	<-s.done
	return err
}
