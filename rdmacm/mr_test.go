package rdmacm

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule (verbs.Memory.Close): memory in which a region is registered stays mapped, whichever call has
// registered it, and whichever part. (The bug: RegMR adopted what the library had mapped, and Close
// unmapped it under the region.)
func TestMemoryOfARegionStaysMapped(t *testing.T) {
	r := newRig(t)
	pd := r.dev[0].PD()
	m := must.Get(verbs.AllocMemory(1 << 16))(t)
	whole := must.Get(RegMR(pd, m.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	part := must.Get(RegMR(pd, m.Bytes()[100:200], verbs.AccessLocalWrite|verbs.AccessRemoteWrite))(t)
	for _, mr := range []*MR{whole, part} {
		if err := m.Close(); !errors.Is(err, verbs.ErrBusy) {
			t.Fatalf("Close of memory in which regions are registered: %v, want ErrBusy", err)
		}
		m.Bytes()[0]++ // still mapped
		must.Do(t, mr.Dereg())
	}
	must.Do(t, m.Close())
}
