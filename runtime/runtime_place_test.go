package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/open"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: nodesFor returns the device's NUMA node if this process may use memory of that node.
// Otherwise it returns every node whose CPUs and memory this process may use. In the result, n+1
// stands for node n. If there is no such node, or if the machine has only one node, the result is [0],
// which means no particular node.
func TestNodesForADevice(t *testing.T) {
	one := []sys.Node{{ID: 0, CPUs: []int{0, 1}}}
	// Node 4 has memory but no CPUs.
	three := []sys.Node{{ID: 0, CPUs: []int{0, 1}}, {ID: 1, CPUs: []int{2, 3}}, {ID: 4}}
	everywhere, cpus := []int{0, 1, 4}, []int{0, 1, 2, 3}
	for what, c := range map[string]struct {
		device     int
		all        []sys.Node
		mems, cpus []int
		want       []int
	}{
		"a machine with one node, a device on an unknown node":                {-1, one, []int{0}, cpus, []int{0}},
		"a machine with one node, a device on this node":                      {0, one, []int{0}, cpus, []int{0}},
		"a device on an unknown node":                                         {-1, three, everywhere, cpus, []int{1, 2}},
		"a device on node 1":                                                  {1, three, everywhere, cpus, []int{2}},
		"a device on a node that has memory but no CPUs":                      {4, three, everywhere, cpus, []int{5}},
		"a device on a node that the machine does not have":                   {7, three, everywhere, cpus, []int{1, 2}},
		"the process may not use the memory of the device's node":             {1, three, []int{0}, cpus, []int{1}},
		"the process may not use the CPUs of the device's node":               {1, three, everywhere, []int{0}, []int{2}},
		"the process may use only the CPUs of one node":                       {-1, three, everywhere, []int{3}, []int{2}},
		"the process may use only the memory of one node":                     {-1, three, []int{1}, cpus, []int{2}},
		"the process may use only the memory of a node without CPUs":          {-1, three, []int{4}, cpus, []int{0}},
		"the process may use the memory of one node, and the CPUs of another": {-1, three, []int{0}, []int{3}, []int{0}},
	} {
		if got := nodesFor(c.device, c.all, c.mems, c.cpus); !slices.Equal(got, c.want) {
			t.Errorf("%s: nodesFor returned %v, want %v", what, got, c.want)
		}
	}
}

// vectorSpy is a provider that records the completion vector of every CreateCQ.
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

// Rule: a reactor uses one completion vector for its two completion queues. Reactor i of the runtime
// uses vector i modulo the number of vectors.
func TestReactorsShareOutTheCompletionVectors(t *testing.T) {
	const vectors, reactors = 3, 5
	var asked []int
	p := must.Get(soft.New(soft.Config{Devices: []soft.DeviceConfig{{Name: "a", Addr: netip.MustParseAddr("127.9.0.1"), Limits: soft.Limits{CompVectors: vectors}}}}))(t)
	rt := mustOpen(t, Config{Provider: vectorSpy{p, &asked}, Device: "a", Reactors: reactors})
	n := len(rt.shards)
	if n%reactors != 0 || len(asked) != 2*n {
		t.Fatalf("%d reactors and %d completion queues, want %d reactors per NUMA node and 2 completion queues per reactor", n, len(asked), reactors)
	}
	for i, v := range asked {
		if v != i/2%vectors {
			t.Errorf("completion queue %d of reactor %d has vector %d, want %d; the vectors of all completion queues are %v", i%2, i/2, v, i/2%vectors, asked)
		}
	}
}

// Rule: a reactor gets a completion vector whose interrupt arrives on the reactor's node. If no
// vector's does, or if the processors of the vectors are unknown, all vectors count. Each vector gets its share
// of the reactors.
func TestVectorsOfANode(t *testing.T) {
	two := []sys.Node{{ID: 0, CPUs: []int{0, 1}}, {ID: 1, CPUs: []int{2, 3}}}
	alternate := [][]int{{2}, {0}, {3}, {1}} // vectors 1 and 3 are near node 0, the others near node 1
	for what, c := range map[string]struct {
		nodes             []int
		reactors, vectors int
		cpus              [][]int
		want              []int
	}{
		"unknown":                   {nodes: []int{1, 2}, reactors: 2, vectors: 3, want: []int{0, 1, 2, 0}},
		"no_node":                   {nodes: []int{0}, reactors: 5, vectors: 4, cpus: alternate, want: []int{0, 1, 2, 3, 0}},
		"node_0":                    {nodes: []int{1}, reactors: 3, vectors: 4, cpus: alternate, want: []int{1, 3, 1}},
		"node_1":                    {nodes: []int{2}, reactors: 2, vectors: 4, cpus: alternate, want: []int{0, 2}},
		"both_nodes":                {nodes: []int{1, 2}, reactors: 2, vectors: 4, cpus: alternate, want: []int{1, 3, 0, 2}},
		"interrupts_on_other_nodes": {nodes: []int{1}, reactors: 3, vectors: 2, cpus: [][]int{{2}, {3}}, want: []int{0, 1, 0}},
		"no_vectors":                {nodes: []int{1}, reactors: 2, vectors: 0, want: []int{0, 0}},
	} {
		if got := vectorsFor(c.nodes, c.reactors, c.vectors, c.cpus, two); !slices.Equal(got, c.want) {
			t.Errorf("%s: the vectors are %v, want %v", what, got, c.want)
		}
	}
}

// interruptedDevice has what Runtime.vectors needs of a device.
type interruptedDevice struct {
	verbs.Context
	cpus [][]int
}

func (d interruptedDevice) Device() verbs.DeviceInfo { return verbs.DeviceInfo{VectorCPUs: d.cpus} }

// Rule: the vectors of the reactors depend on the processors that the device reports for each vector.
func TestVectorsOfTheDevice(t *testing.T) {
	rt := &Runtime{cfg: Config{Reactors: 1}, nodes: []int{2}, dev: interruptedDevice{cpus: [][]int{{0}, {2}}}}
	two := []sys.Node{{ID: 0, CPUs: []int{0, 1}}, {ID: 1, CPUs: []int{2, 3}}}
	if got, want := rt.vectors(2, two), []int{1}; !slices.Equal(got, want) {
		t.Errorf("the reactor on node 1 has the vectors %v, want %v, whose interrupt arrives there", got, want)
	}
}

// Rule: a device name may begin with the name of its provider, as in "soft:soft2". The environment
// variable VERBENA_DEVICE has an effect only if Config has neither a Device nor a Provider.
func TestWhoChoosesTheDevice(t *testing.T) {
	own, _ := ownPorts(t)
	for _, c := range []struct {
		env            string
		cfg            Config
		device, refuse string // the device that is opened, or a part of the error's text
		kind           error
	}{
		{cfg: Config{}, device: "soft0"},
		{cfg: Config{Device: "soft2"}, device: "soft2"},
		{cfg: Config{Device: "soft:soft2"}, device: "soft2"},
		{cfg: Config{Device: "soft:"}, device: "soft0"},
		{env: "soft:soft1", cfg: Config{}, device: "soft1"},
		{env: "soft1", cfg: Config{}, device: "soft1"},
		{env: "soft1", cfg: Config{Device: "soft2"}, device: "soft2"},
		{env: "soft1", cfg: Config{Provider: own}, device: "a"},
		{cfg: Config{Provider: own, Device: "b"}, device: "b"},
		{cfg: Config{Provider: own, Device: "soft:b"}, device: "b"},
		{cfg: Config{Provider: own, Device: "ibv:b"}, refuse: "Config.Provider is soft", kind: ErrConfig},
		{cfg: Config{Device: "mlx:mlx5_0"}, refuse: `no provider "mlx", known: ibv, soft`, kind: ErrConfig},
		{env: "mlx:mlx5_0", cfg: Config{}, refuse: "the environment variable VERBENA_DEVICE", kind: ErrConfig},
		{env: "mlx5_0", cfg: Config{}, refuse: `is named "ibv:mlx5_0"`, kind: verbs.ErrUnknownDevice},
		{cfg: Config{Device: "mlx5_0"}, refuse: `is named "ibv:mlx5_0"`, kind: verbs.ErrUnknownDevice},
		{cfg: Config{Device: "soft:mlx5_0"}, refuse: "known: soft0, soft1", kind: verbs.ErrUnknownDevice},
	} {
		t.Setenv(DeviceEnv, c.env) // "" has the same effect as an unset variable
		what := fmt.Sprintf("Open with %s=%q and Config.Device %q", DeviceEnv, c.env, c.cfg.Device)
		rt, err := Open(c.cfg)
		switch {
		case err != nil && c.refuse == "":
			t.Errorf("%s: %v, want device %s", what, err, c.device)
		case err != nil:
			mistake(t, what, err, c.kind, c.refuse)
		case c.refuse != "":
			t.Errorf("%s: device %s, want an error with the text %q", what, rt.Device().Name, c.refuse)
		case rt.Device().Name != c.device:
			t.Errorf("%s: device %s, want device %s", what, rt.Device().Name, c.device)
		}
		if err == nil {
			if err := rt.Close(testContext(t)); err != nil {
				t.Error(err)
			}
		}
	}
}

// ownPorts returns a provider with the devices "a" and "b", and the names of the devices.
func ownPorts(t *testing.T) (*soft.Provider, []string) {
	t.Helper()
	p := must.Get(soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "a", Addr: netip.MustParseAddr("10.1.0.1")}, {Name: "b", Addr: netip.MustParseAddr("10.1.0.2")},
	}}))(t)
	return p, []string{"a", "b"}
}

// Rule: without a device name, Open chooses a device whose port is up. With a device name, Open
// opens this device even if its port is down.
func TestDevicesWithoutACableArePassedOver(t *testing.T) {
	p, names := ownPorts(t)
	opened := func(device string) (string, error) {
		rt, err := Open(Config{Provider: p, Device: device})
		if err != nil {
			return "", err
		}
		return rt.Device().Name, rt.Close(testContext(t))
	}
	if err := p.SetPort("a", false); err != nil {
		t.Fatal(err)
	}
	if got, err := opened(""); got != "b" || err != nil {
		t.Errorf("Open without a name, while the port of a is down: device %q, error %v, want device b", got, err)
	}
	if got, err := opened("a"); got != "a" || err != nil {
		t.Errorf("Open by name, while the port of a is down: device %q, error %v, want device a", got, err)
	}
	if err := p.SetPort("b", false); err != nil {
		t.Fatal(err)
	}
	_, err := opened("")
	mistake(t, "Open without a name, while both ports are down", err, open.ErrNoPort, names[0], names[1], "Config.Device")
	for _, name := range names {
		if err := p.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	_, err = opened("")
	mistake(t, "Open without a name, after both devices were removed", err, verbs.ErrUnknownDevice, "soft")
}

// Rule: if the RDMA libraries or the kernel's support for them are missing, Open of an ibv device
// returns ErrNotSupported.
func TestLibibverbsThatIsMissingSaysSo(t *testing.T) {
	notOnDevice(t, "the machine has the libraries")
	for _, device := range []string{"ibv:", "ibv:mlx5_0"} {
		rt, err := Open(Config{Device: device})
		switch {
		case err == nil: // the machine has such a device
			if err := rt.Close(testContext(t)); err != nil {
				t.Error(err)
			}
		case errors.Is(err, verbs.ErrUnknownDevice): // the machine has the libraries, but not this device
		default:
			mistake(t, "Open of "+device, err, verbs.ErrNotSupported, "ibv", "Config.Device")
		}
	}
}
