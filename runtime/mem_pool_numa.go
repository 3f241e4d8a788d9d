package runtime

import (
	"iter"

	"github.com/verbena-rdma/verbena/reactor"
)

// poolSet has one pool per size class.
type poolSet [numClasses]pool

// place() sets the NUMA node on which the pools map new slabs: n+1 stands for node n of the system,
// 0 for any node. Call place() before other goroutines can use the pools.
func (ps *poolSet) place(node int) {
	for i := range ps {
		ps[i].node = node
	}
}

// newNodePools returns a map with a new poolSet for each element of nodes, except 0. An element n+1
// stands for node n of the system. If cfg.Node is not 0, all memory is on that node, and
// newNodePools returns nil.
func newNodePools(cfg MemoryConfig, nodes []int) map[int]*poolSet {
	if cfg.Node != 0 {
		return nil
	}
	near := map[int]*poolSet{}
	for _, node := range nodes {
		if node != 0 && near[node] == nil {
			near[node] = new(poolSet)
			near[node].place(node)
		}
	}
	return near
}

// allocOnNode allocates n bytes on the NUMA node of a reactor. The argument node is the number of
// the node plus 1, or 0 for any node. If the node has no pools, or n is larger than MaxPooled,
// allocOnNode calls allocUntil. A nil asked never ends.
func (m *memory) allocOnNode(asked reactor.DoneContext, node, n int) (Buffer, error) {
	ps := m.nodePools[node]
	if ps == nil || n < 0 || n > MaxPooled {
		return m.allocUntil(asked, n)
	}
	if m.closing.Load() {
		return Buffer{}, errMemoryClosed
	}
	class := classOf(n)
	if s, i, ok := ps[class].get(); ok {
		return s.lend(i, n), nil
	}
	return m.allocSlow(asked, &ps[class], n)
}

// allPools iterates over the pools that Alloc uses, and then over the pools of each node.
func (m *memory) allPools() iter.Seq[*pool] {
	return func(yield func(*pool) bool) {
		for i := range m.pools {
			if !yield(&m.pools[i]) {
				return
			}
		}
		for _, ps := range m.nodePools {
			for i := range ps {
				if !yield(&ps[i]) {
					return
				}
			}
		}
	}
}
