package rxevm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	uatomic "go.uber.org/atomic"
)

// maxFrame is the longest frame that a cable accepts, in bytes: more than any MTU used here. A
// larger length is invalid, and unplugs the end.
const maxFrame = 64 << 10

// maxEnds is the number of machines on a cable: the last byte of their addresses.
const maxEnds = 250

// Cable is the virtual network that joins machines: a hub in this process, which forwards each
// frame of one machine to all the others. Frames stay in order, none is lost while the cable is
// whole, and a slow machine delays the others. Its methods may be called from any goroutine.
//
//	whole <--(Cut, Restore)--> cut
type Cable struct {
	// cut is written by Cut and Restore, read for each frame. It publishes
	// nothing else.
	cut uatomic.Bool
	// carried and lost are written by the goroutines of the ends, read by Counts.
	carried, lost atomic.Uint64

	mu      sync.Mutex // guards the following fields
	ends    []*end
	plugged int // number of ends so far; the next gets this number plus one
	wg      sync.WaitGroup
	closed  bool
}

// end is one end of the cable.
type end struct {
	conn io.ReadWriteCloser
	out  sync.Mutex // guards writes
}

// NewCable returns a cable without ends. It starts no goroutine before an end is plugged in. The
// caller closes it after the machines on it.
func NewCable() *Cable { return &Cable{} }

// Cut drops all frames from now on. The machines still see a carrier. A frame in transit may yet
// arrive.
func (c *Cable) Cut() { c.cut.Store(true) }

// Restore reverses Cut. Lost frames stay lost.
func (c *Cable) Restore() { c.cut.Store(false) }

// Counts returns the number of frames forwarded since the cable was made, and of those dropped
// because it was cut.
func (c *Cable) Counts() (carried, lost uint64) { return c.carried.Load(), c.lost.Load() }

// Close unplugs all ends and returns when all goroutines of the cable have ended. It is
// idempotent.
func (c *Cable) Close() error {
	c.mu.Lock()
	c.closed = true
	ends := c.ends
	c.ends = nil
	c.mu.Unlock()
	var err error
	for _, e := range ends {
		if cerr := e.conn.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	c.wg.Wait()
	return err
}

// plug adds an end, which the cable closes, and returns its number, from 1 on. The stream is
// QEMU's (net/socket.c): each frame is preceded by its length, four bytes, big-endian.
func (c *Cable) plug(conn io.ReadWriteCloser) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.plugged == maxEnds {
		return 0, fmt.Errorf("rxevm: the cable is closed, or has had its %d ends", maxEnds)
	}
	c.plugged++
	e := &end{conn: conn}
	c.ends = append(c.ends, e)
	c.wg.Go(func() { c.relay(e) })
	return c.plugged, nil
}

// relay forwards the frames from one end until it is unplugged.
func (c *Cable) relay(from *end) {
	defer c.unplug(from)
	in := bufio.NewReaderSize(from.conn, 2*maxFrame)
	buf := make([]byte, lengthLen+maxFrame)
	for {
		if _, err := io.ReadFull(in, buf[:lengthLen]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(buf)
		if n > maxFrame {
			return
		}
		frame := buf[:lengthLen+n]
		if _, err := io.ReadFull(in, frame[lengthLen:]); err != nil {
			return
		}
		if c.cut.Load() {
			c.lost.Add(1)
			continue
		}
		c.carried.Add(1)
		for _, to := range c.others(from) {
			to.out.Lock()
			_, err := to.conn.Write(frame)
			to.out.Unlock()
			if err != nil {
				c.unplug(to) // that machine has ended; its own reader ends
			}
		}
	}
}

// lengthLen is the size of the length field.
const lengthLen = 4

func (c *Cable) others(than *end) (to []*end) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.ends {
		if e != than {
			to = append(to, e)
		}
	}
	return to
}

func (c *Cable) unplug(e *end) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.ends {
		if c.ends[i] == e {
			c.ends = append(c.ends[:i:i], c.ends[i+1:]...)
			_ = e.conn.Close() // nothing is buffered in it
			return
		}
	}
}
