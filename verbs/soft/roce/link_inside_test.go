package roce

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: a datagram from the address of a device of this process is no packet, as that device's packets never leave
// the process: any program of the machine may have a socket at such an address.
func TestAForgedNeighborIsRefused(t *testing.T) {
	r := newRig(t)
	b := datagram(&wire.Header{Opcode: wire.RCSendOnly, DestQP: 2}, nil)
	arrive := func(when string, packets int, want Stats) {
		t.Helper()
		r.got, r.sock.arrived = nil, []arrival{{from: far, b: b}}
		r.looks()
		if got := r.link.Stats(); len(r.got) != packets || got != want {
			t.Errorf("%s: %d packets arrived, want %d; %+v, want %+v", when, len(r.got), packets, got, want)
		}
	}
	arrive("a host of the network", 1, Stats{Received: 1})
	other := new(device)
	other.port = must.Get(r.fab.Attach(gidOf(far), "neighbor", other))(t)
	arrive("a device of this process", 0, Stats{Received: 2, Refused: 1})
	other.port.Detach()
	arrive("a device that is gone", 1, Stats{Received: 3, Refused: 1})
}
