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
// once by an identifier that is bound to all devices.
type cmPorts struct {
	mu   sync.Mutex // guards the rest; no other lock is taken under it
	held map[uint16][]portHold
	next uint16 // where the search for a free ephemeral port starts
}

type portHold struct {
	id  *cmID
	dev *device // nil: every device
}

// take gives id a port on a device, or on all devices when dev is nil. Port 0 selects a free one.
// It fails with EADDRINUSE when the port is held, and with EADDRNOTAVAIL when no ephemeral port
// is free.
func (t *cmPorts) take(id *cmID, dev *device, port uint16) (uint16, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held == nil {
		t.held = map[uint16][]portHold{}
		t.next = firstEphemeral
	}
	if port != 0 {
		if by := t.holder(dev, port); by != nil {
			return 0, withErrno(syscall.EADDRINUSE, "port %d is held by CM ID %d", port, by.number)
		}
		t.hold(id, dev, port)
		return port, nil
	}
	for range lastEphemeral - firstEphemeral + 1 {
		port := t.next
		if t.next++; t.next > lastEphemeral {
			t.next = firstEphemeral
		}
		if t.holder(dev, port) == nil {
			t.hold(id, dev, port)
			return port, nil
		}
	}
	return 0, withErrno(syscall.EADDRNOTAVAIL, "all ports from %d to %d are held", firstEphemeral, lastEphemeral)
}

func (t *cmPorts) holder(dev *device, port uint16) *cmID {
	for _, h := range t.held[port] {
		if dev == nil || h.dev == nil || h.dev == dev {
			return h.id
		}
	}
	return nil
}

func (t *cmPorts) hold(id *cmID, dev *device, port uint16) {
	t.held[port] = append(t.held[port], portHold{id, dev})
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
