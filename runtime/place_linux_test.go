package runtime

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
)

// numaMapping is a memory mapping: a line of /proc/self/numa_maps (proc(5)).
type numaMapping struct {
	addr   uint64      // the first address
	policy string      // the NUMA policy, for example "prefer:1"
	pages  map[int]int // the number of pages on each node
	line   string      // the whole line
}

// numaMaps returns all mappings of this process, ordered by address.
func numaMaps(t *testing.T) (all []numaMapping) {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/self/numa_maps"))(t)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		addr := must.Get(strconv.ParseUint(f[0], 16, 64))(t)
		m := numaMapping{addr, f[1], map[int]int{}, line}
		for _, word := range f[2:] {
			name, value, _ := strings.Cut(word, "=")
			node, nerr := strconv.Atoi(strings.TrimPrefix(name, "N"))
			n, verr := strconv.Atoi(value)
			if strings.HasPrefix(name, "N") && nerr == nil && verr == nil {
				m.pages[node] = n
			}
		}
		all = append(all, m)
	}
	return all
}

// Rule: if a machine has several NUMA nodes, the off-heap memory of a reactor and of its connections
// lies on the reactor's node, and the memory's policy prefers this node. The memory holds work requests,
// completions and receive buffers. In this test every node has a reactor, because the system reports no
// node for the test's devices.
func TestMemoryLiesOnItsReactorsNode(t *testing.T) {
	const conns = 4
	nodes := must.Get(sys.Nodes())(t)
	if len(nodes) < 2 {
		t.Skip("this machine has one NUMA node (/sys/devices/system/node/online)")
	}
	before := slices.Collect(mem.All())
	cfg := Config{ConnectTimeout: patience()}
	server, client := mainBed.open(t, cfg, 1), mainBed.open(t, cfg, 0)
	if len(client.shards) != len(nodes) {
		t.Fatalf("the runtime has %d reactors, want %d: one for each node", len(client.shards), len(nodes))
	}
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	want := map[int]int{} // the number of arenas (mem.Arena) that each node should have at least
	for range conns {
		seat := must.Get(ln.AcceptAsync())(t)
		a := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		b := must.Get(seat.Await(ctx))(t)
		for _, c := range [][2]*Conn{{a, b}, {b, a}} { // a message each way makes the kernel allocate the pages
			f, err := c[0].SendBytes(ctx, []byte("touch"))
			done(t, f, err)
			m, err := c[1].RecvWait(ctx)
			if err != nil || !bytes.Equal(m.Data, []byte("touch")) {
				t.Fatalf("received %q, error %v; want %q", m.Data, err, "touch")
			}
			if err := m.Release(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, rt := range []*Runtime{server, client} {
		for _, s := range rt.shards {
			want[s.node-1] += 2 // the arenas with the completions of the reactor's two completion queues
			want[s.node-1]++    // the arena with the work requests of its connections
			for _, pools := range s.pools {
				want[s.node-1] += len(pools) // the arena with the work requests of the shared receives
			}
		}
		for node, ps := range rt.mem.nodePools {
			for i := range ps {
				want[node-1] += len(ps[i].list())
			}
		}
	}
	all := numaMaps(t)
	got := map[int]int{}
	for a := range mem.All() {
		if slices.Contains(before, a) {
			continue
		}
		i, exact := slices.BinarySearchFunc(all, a.Addr(), func(m numaMapping, addr uint64) int {
			return cmp.Compare(m.addr, addr)
		})
		if !exact {
			i--
		}
		m := all[i]
		node, err := strconv.Atoi(strings.TrimPrefix(m.policy, "prefer:"))
		switch {
		case err != nil:
			t.Errorf("an arena of %d bytes has the policy %q, want a policy that prefers a node; the mapping: %s", a.Len(), m.policy, m.line)
		case len(m.pages) != 1 || m.pages[node] == 0:
			t.Errorf("an arena of %d bytes has pages on the nodes %v, want only node %d; the mapping: %s", a.Len(), m.pages, node, m.line)
		}
		got[node]++
	}
	// A goroutine that finds another one growing a slab maps a small arena of its own (reactor, slab.grow).
	for node, n := range want {
		if got[node] < n || got[node] > n+conns {
			t.Errorf("the numbers of arenas on the nodes are %v, want %v, and at most one more for each of the %d connections", got, want, conns)
		}
	}
	if len(want) != len(nodes) || len(got) != len(nodes) {
		t.Errorf("arenas are on the nodes %v, want entries for each of the %d nodes, as in %v", got, len(nodes), want)
	}
}
