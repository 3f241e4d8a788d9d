//go:build linux && !portable

package peers

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// udpSocket opens a socket that never blocks, at a port of loopback that the system selects.
func udpSocket() (fd, port int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return 0, 0, err
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		var at unix.Sockaddr
		if at, err = unix.Getsockname(fd); err == nil {
			return fd, at.(*unix.SockaddrInet4).Port, nil
		}
	}
	return 0, 0, errors.Join(err, unix.Close(fd))
}

// lost is how long the floor waits for an answer. Loopback loses nothing that the buffers hold.
const lost = 10 * time.Second

// looks is the number of empty looks at a socket between two looks at the clock.
const looks = 1 << 14

// udpPolling sends a datagram and polls until the answer is there.
type udpPolling struct {
	fd   int
	text []byte
	took suite.Samples
}

func newUDPPolling(to string, h shape) (suite.Load, error) {
	_, text, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	fd, _, err := udpSocket()
	if err != nil {
		return nil, err
	}
	l := &udpPolling{fd: fd, text: make([]byte, h.size)}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *udpPolling) Round(n int, found rounds.Values) error {
	return halves(&l.took, n, found, func() error {
		if err := unix.Sendto(l.fd, l.text, 0, nil); err != nil {
			return err
		}
		return l.await()
	})
}

// await polls until a datagram is there.
func (l *udpPolling) await() error {
	var began time.Time
	for {
		for range looks {
			switch n, _, err := unix.Recvfrom(l.fd, l.text, 0); {
			case err == nil && n == len(l.text):
				return nil
			case err == nil:
				return fmt.Errorf("an answer of %d bytes", n)
			case !again(err):
				return err
			}
		}
		if began.IsZero() {
			began = time.Now()
		} else if time.Since(began) > lost {
			return fmt.Errorf("no answer within %v", lost)
		}
	}
}

// again reports whether a call found nothing to receive.
func again(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

// Close implements suite.Load.
func (l *udpPolling) Close() error { return unix.Close(l.fd) }

// serveUDPEcho polls a socket and answers each datagram with the same.
func serveUDPEcho(h shape) (*service, error) {
	fd, port, err := udpSocket()
	if err != nil {
		return nil, err
	}
	var closing atomic.Bool // set by close, read by the goroutine that polls; publishes nothing
	done := make(chan struct{})
	s := &service{port: port, close: func() error {
		closing.Store(true)
		<-done
		return unix.Close(fd)
	}}
	go func() {
		defer close(done)
		text, connected := make([]byte, h.size), false
		for !closing.Load() {
			n, from, err := unix.Recvfrom(fd, text, 0)
			if err == nil && !connected { // the client: from now on as it does
				err, connected = unix.Connect(fd, from), true
			}
			if err == nil {
				err = unix.Sendto(fd, text[:n], 0, nil)
			}
			if err != nil && !again(err) && !closing.Load() {
				if !errors.Is(err, unix.ECONNREFUSED) { // the client has ended
					s.fault.report(err)
				}
				return
			}
		}
	}()
	return s, nil
}
