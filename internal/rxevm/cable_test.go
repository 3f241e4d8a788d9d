package rxevm

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// patience is a deadline that only a broken run reaches.
const patience = 20 * time.Second

// plugIn plugs an end in and returns the machine's side of it.
func plugIn(t *testing.T, c *Cable) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	if _, err := c.plug(ours); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if err := theirs.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return theirs
}

func sendFrame(t *testing.T, to io.Writer, text string) {
	t.Helper()
	b := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	if _, err := to.Write(append(b, text...)); err != nil {
		t.Fatal(err)
	}
}

// nextFrame returns the error's text where there is no frame.
func nextFrame(from io.Reader) string {
	var n [lengthLen]byte
	if _, err := io.ReadFull(from, n[:]); err != nil {
		return err.Error()
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	if _, err := io.ReadFull(from, b); err != nil {
		return err.Error()
	}
	return string(b)
}

// Frames go to all other ends, in order; while the cable is cut they are dropped, and forwarded
// again afterwards.
func TestCableCarriesAndCuts(t *testing.T) {
	c := NewCable()
	a, b, d := plugIn(t, c), plugIn(t, c), plugIn(t, c)
	got := make(chan []string, 2)
	for _, end := range []net.Conn{b, d} {
		go func() {
			var all []string
			for range 3 {
				all = append(all, nextFrame(end))
			}
			got <- all
		}()
	}
	sendFrame(t, a, "one")
	sendFrame(t, a, "")
	waitCounts(t, c, 2, 0)
	c.Cut()
	sendFrame(t, a, "lost")
	waitCounts(t, c, 2, 1)
	c.Restore()
	sendFrame(t, a, "three")
	for range 2 {
		if all := <-got; !slices.Equal(all, []string{"one", "", "three"}) {
			t.Errorf("an end got %q", all)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Read(make([]byte, 1)); err == nil {
		t.Error("the end of a closed cable can be read")
	}
	if _, err := c.plug(nil); err == nil {
		t.Error("a closed cable took an end")
	}
}

func waitCounts(t *testing.T, c *Cable, carried, lost uint64) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if gotC, gotL := c.Counts(); gotC == carried && gotL == lost {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			gotC, gotL := c.Counts()
			t.Fatalf("%d carried, %d lost; want %d, %d", gotC, gotL, carried, lost)
		}
	}
}

// An end that sends an invalid frame, or disconnects, is unplugged; the others continue.
func TestCableUnplugsTheBroken(t *testing.T) {
	c := NewCable()
	a, b, bad, gone := plugIn(t, c), plugIn(t, c), plugIn(t, c), plugIn(t, c)
	gone.Close()
	if _, err := bad.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if _, err := bad.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a frame of 4 GB: %v, want the end unplugged", err)
	}
	got := make(chan string, 1)
	go func() { got <- nextFrame(b) }()
	sendFrame(t, a, "still")
	if s := <-got; s != "still" {
		t.Errorf("got %q", s)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
