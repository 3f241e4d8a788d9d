package soft

import (
	"sync"
	"syscall"
)

// The range of ports that the provider assigns, as on Linux (net.ipv4.ip_local_port_range).
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
)

// cmPorts records the holders of the ports of a port space. A port is held once per device, or
// once by an identifier that is bound to all devices; [cmPorts.holder] has the exceptions.
type cmPorts struct {
	mu   sync.Mutex // guards the rest; no other lock is taken under it
	held map[uint16][]portHold
	next uint16 // where the search for a free ephemeral port starts
}

type portHold struct {
	id    *cmID
	dev   *device // nil: every device
	reuse bool    // shared with others that have it
	only  uint8   // the IP version that the identifier is restricted to; 0: none
}

// take gives h.id a port. Port 0 selects one without another holder. It fails with EADDRINUSE when the port is held,
// and with EADDRNOTAVAIL when no ephemeral port is free.
func (t *cmPorts) take(h portHold, port uint16) (uint16, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held == nil {
		t.held = map[uint16][]portHold{}
		t.next = firstEphemeral
	}
	if port != 0 {
		if err := t.check(h, port); err != nil {
			return 0, err
		}
		t.held[port] = append(t.held[port], h)
		return port, nil
	}
	alone := h
	alone.reuse = false
	for range lastEphemeral - firstEphemeral + 1 {
		port := t.next
		if t.next++; t.next > lastEphemeral {
			t.next = firstEphemeral
		}
		if t.holder(alone, port) == nil {
			t.held[port] = append(t.held[port], h)
			return port, nil
		}
	}
	return 0, withErrno(syscall.EADDRNOTAVAIL, "all ports from %d to %d are held", firstEphemeral, lastEphemeral)
}

// holder returns an identifier whose hold of a port excludes h; nil if there is none.
//
// Implements: cma_check_port (kernel cma.c); but it compares devices, which have an address each, and every conflict
// is EADDRINUSE.
func (t *cmPorts) holder(h portHold, port uint16) *cmID {
	for _, o := range t.held[port] {
		switch {
		case o.id == h.id, o.reuse && h.reuse:
		case o.only != 0 && h.only != 0 && o.only != h.only:
		case o.dev == nil || h.dev == nil || o.dev == h.dev:
			return o.id
		}
	}
	return nil
}

func (t *cmPorts) check(h portHold, port uint16) error {
	if by := t.holder(h, port); by != nil {
		return withErrno(syscall.EADDRINUSE, "port %d is held by CM ID %d", port, by.number)
	}
	return nil
}

// claim ends the sharing of a port by id, or fails with EADDRINUSE while another identifier has it.
func (t *cmPorts) claim(id *cmID, port uint16) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.held[port] {
		if h.id == id {
			h.reuse = false
			if err := t.check(h, port); err != nil {
				return err
			}
			t.held[port][i].reuse = false
		}
	}
	return nil
}

// share undoes claim.
func (t *cmPorts) share(id *cmID, port uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.held[port] {
		if h.id == id {
			t.held[port][i].reuse = true
		}
	}
}

// narrow restricts a port held on all devices to dev.
func (t *cmPorts) narrow(id *cmID, dev *device, port uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.held[port] {
		if h.id == id {
			t.held[port][i].dev = dev
		}
	}
}

// free releases a port.
func (t *cmPorts) free(id *cmID, port uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hs := t.held[port]
	for i, h := range hs {
		if h.id == id {
			if hs = append(hs[:i], hs[i+1:]...); len(hs) == 0 {
				if delete(t.held, port); len(t.held) == 0 {
					t.held = map[uint16][]portHold{} // an emptied map keeps its memory
				}
			} else {
				t.held[port] = hs
			}
			return
		}
	}
}
