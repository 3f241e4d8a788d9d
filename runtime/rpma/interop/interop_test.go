package interop

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/runtime/rpma"
)

// Rule: this end connects to an endpoint of librpma, and both exchange all that the script has, in either order
// of disconnection.
func TestLibrpmaPassive(t *testing.T) {
	onBenches(t, map[form]order{native: first, plain: second}, func(b *bench) {
		p, port := b.startPassive()
		e := b.newEnd(false)
		e.connect(e.dial(port))
		e.converse()
		e.compare(p.lines())
	})
}

// Rule: a client of librpma connects to an endpoint of this end, and both exchange all that the script has, in
// either order of disconnection.
func TestLibrpmaActive(t *testing.T) {
	onBenches(t, map[form]order{native: second, plain: first}, func(b *bench) {
		b.routed()
		e := b.newEnd(true)
		p := e.startActive()
		e.connect(e.accept())
		e.converse()
		e.compare(p.lines())
	})
}

// Rule: a request that librpma refuses ends with the event Rejected.
func TestLibrpmaRefuses(t *testing.T) {
	onBenches(t, map[form]order{plain: refused}, func(b *bench) {
		p, port := b.startPassive()
		e := b.newEnd(false)
		e.request(e.dial(port))
		e.event(rpma.Rejected)
		p.lines()
	})
}

// Rule: a request of librpma that this end refuses, after it has read the private data, ends with librpma's event
// for that.
func TestLibrpmaRefused(t *testing.T) {
	onBenches(t, map[form]order{plain: refused}, func(b *bench) {
		b.routed()
		e := b.newEnd(true)
		p := e.startActive()
		q := e.accept()
		private := q.PrivateData()
		b.must(q.Close(b.ctx))
		want := []string{"device " + b.theirs.name, "described " + hexOf(private[:min(len(private), describedSize)]), "event Connection rejected", "end"}
		if got := p.lines(); !slices.Equal(got, want) {
			b.Errorf("the program printed %q, want %q", got, want)
		}
	})
}
