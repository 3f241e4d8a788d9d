package runtime

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// Rule: reactors are on the device's node where the system tells it, else on every node
// on which this process may run and have memory; where there is one node, or none that
// may be had, nothing is bound.
func TestNodesForADevice(t *testing.T) {
	one := []sys.Node{{ID: 0, CPUs: []int{0, 1}}}
	three := []sys.Node{{ID: 0, CPUs: []int{0, 1}}, {ID: 1, CPUs: []int{2, 3}}, {ID: 4}} // the last is memory only
	everywhere, cpus := []int{0, 1, 4}, []int{0, 1, 2, 3}
	for what, c := range map[string]struct {
		device     int
		all        []sys.Node
		mems, cpus []int
		want       []int
	}{
		"one node":                            {-1, one, []int{0}, cpus, []int{0}},
		"one node, that of the device":        {0, one, []int{0}, cpus, []int{0}},
		"unknown device":                      {-1, three, everywhere, cpus, []int{1, 2}},
		"a device's node":                     {1, three, everywhere, cpus, []int{2}},
		"a device at memory without cores":    {4, three, everywhere, cpus, []int{5}},
		"a node that is not there":            {7, three, everywhere, cpus, []int{1, 2}},
		"no memory at the device":             {1, three, []int{0}, cpus, []int{1}},
		"no cores at the device":              {1, three, everywhere, []int{0}, []int{2}},
		"kept to the cores of a node":         {-1, three, everywhere, []int{3}, []int{2}},
		"kept to the memory of a node":        {-1, three, []int{1}, cpus, []int{2}},
		"memory only where there is no core":  {-1, three, []int{4}, cpus, []int{0}},
		"neither memory nor cores that match": {-1, three, []int{0}, []int{3}, []int{0}},
	} {
		if got := nodesFor(c.device, c.all, c.mems, c.cpus); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// vectorSpy is a provider that notes what completion vectors its devices are asked for.
type vectorSpy struct {
	verbs.Provider
	vectors *[]int
}

func (p vectorSpy) Open(name string) (verbs.Context, error) {
	ctx, err := p.Provider.Open(name)
	return vectorSpyContext{ctx, p.vectors}, err
}

type vectorSpyContext struct {
	verbs.Context
	vectors *[]int
}

func (c vectorSpyContext) CreateCQ(n int, ch verbs.CompChannel, vector int, userData uint64) (verbs.CQ, error) {
	*c.vectors = append(*c.vectors, vector)
	return c.Context.CreateCQ(n, ch, vector, userData)
}

// Rule: each reactor has a completion vector of its own for both its queues, and the
// vectors begin anew when there are more reactors.
func TestReactorsShareOutTheCompletionVectors(t *testing.T) {
	const vectors, reactors = 3, 5
	var asked []int
	p, err := soft.New(soft.Config{Devices: []soft.DeviceConfig{{Name: "a", Addr: netip.MustParseAddr("127.9.0.1"), Limits: soft.Limits{CompVectors: vectors}}}})
	if err != nil {
		t.Fatal(err)
	}
	rt := mustOpen(t, Config{Provider: vectorSpy{p, &asked}, Device: "a", Reactors: reactors})
	n := len(rt.shards)
	if n%reactors != 0 || len(asked) != 2*n {
		t.Fatalf("%d reactors with %d queues, want %d per node and 2 each", n, len(asked), reactors)
	}
	for i, v := range asked {
		if v != i/2%vectors {
			t.Errorf("queue %d of reactor %d is on vector %d, want %d: %v", i%2, i/2, v, i/2%vectors, asked)
		}
	}
}
