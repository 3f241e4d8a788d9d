//go:build unix

package roce

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: a packet whose payload is not there any more is dropped, and those before and after it leave.
func TestPayloadThatIsTakenAwayIsNotSent(t *testing.T) {
	page := os.Getpagesize()
	b := must.Get(unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	must.Do(t, unix.Mprotect(b[page:], unix.PROT_NONE))
	r := newRig(t)
	r.port.Exclusive(func() {
		for i, payload := range [][]byte{b[:100], b[page-50 : page+50], b[100:200]} {
			k := r.port.Get()
			k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PKey: wire.DefaultPKey, PSN: wire.PSN(i)})
			k.Foreign = true
			k.AddRef(payload)
			r.port.Send(wire.To(gidOf(far)), k)
		}
	})
	r.steps()
	var psns []wire.PSN
	for _, d := range r.sock.sent {
		var h wire.Header
		must.Get(wire.Parse(d, &h))(t)
		psns = append(psns, h.PSN)
	}
	if len(psns) != 2 || psns[0] != 0 || psns[1] != 2 || r.link.tx.used != 0 {
		t.Errorf("packets %v were sent, and the batch keeps %d bytes; want 0 and 2, none", psns, r.link.tx.used)
	}
	must.Do(t, unix.Munmap(b))
}
