//go:build unix

package fabric

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Rule: on a link with a script or a tracer, a packet whose payload is not there any more is lost; its
// holder is told.
func TestPayloadThatIsTakenAwayIsLost(t *testing.T) {
	page := os.Getpagesize()
	b := must.Get(unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	must.Do(t, unix.Mprotect(b[page:], unix.PROT_NONE))
	for name, prepare := range map[string]func(f *Fabric){
		"delayed":    func(f *Fabric) { f.SetLink(gid(0), gid(1), Link{Delay: time.Millisecond}) },
		"duplicated": func(f *Fabric) { f.SetLink(gid(0), gid(1), Link{Rules: []Rule{{From: 1, Dup: true}}}) },
		"traced":     func(f *Fabric) { f.SetTrace(func(Event) {}, true) },
	} {
		f := New(Config{Virtual: true})
		from, to := &toy{}, &toy{}
		attach(t, f, from, to)
		prepare(f)
		told := 0
		from.inTurn(func() {
			for i, payload := range [][]byte{b[:100], b[page-50 : page+50], b[100:200]} {
				k := from.port.Get()
				k.SetHeader(&wire.Header{Opcode: wire.RCSendOnly, PSN: wire.PSN(i)})
				k.Foreign = true
				k.AddRef(payload)
				k.Holder = holderFunc(func(*Packet) { told++ })
				from.port.Send(wire.To(gid(1)), k)
			}
		})
		settle(f, time.Second)
		if slices.Contains(to.psns, 1) || !slices.Contains(to.psns, 0) || !slices.Contains(to.psns, 2) || told != 3 {
			t.Errorf("%s: packets %v arrived, %d holders were told; want 0 and 2, 3", name, to.psns, told)
		}
	}
	must.Do(t, unix.Munmap(b))
}
