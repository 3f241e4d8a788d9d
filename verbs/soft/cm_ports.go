package soft

import (
	"sync"
	"syscall"
)

// The ports that the provider chooses from, as Linux does
// (net.ipv4.ip_local_port_range).
const (
	firstEphemeral = 32768
	lastEphemeral  = 60999
)

// cmPorts says who has which port of a port space. A port can be held
// once per device, or once by an identifier that is bound to all of them.
type cmPorts struct {
	mu   sync.Mutex // guards the rest; nothing else is locked under it
	held map[uint16][]portHold
	next uint16 // where to look for a free ephemeral port
}

type portHold struct {
	id  *cmID
	dev *device // nil: every device
}

// take gives id a port on a device, or on all when dev is nil. port 0 is any
// free one. EADDRINUSE says that somebody has it, EADDRNOTAVAIL that no
// ephemeral port is free.
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

// narrow makes a port held on all devices one of a single device.
func (t *cmPorts) narrow(id *cmID, dev *device, port uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range t.held[port] {
		if h.id == id {
			t.held[port][i].dev = dev
		}
	}
}

// free gives a port back.
func (t *cmPorts) free(id *cmID, port uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hs := t.held[port]
	for i, h := range hs {
		if h.id == id {
			if hs = append(hs[:i], hs[i+1:]...); len(hs) == 0 {
				if delete(t.held, port); len(t.held) == 0 {
					t.held = map[uint16][]portHold{} // a map that is emptied keeps its memory
				}
			} else {
				t.held[port] = hs
			}
			return
		}
	}
}
