package runtime

import "iter"

// poolSet has one pool per size class.
type poolSet [numClasses]pool

// place sets the NUMA node of new slabs, counted from 1; 0 is anywhere.
// It must be called before the pools are shared.
func (ps *poolSet) place(node int) {
	for i := range ps {
		ps[i].node = node
	}
}

// newNodePools returns pools on nodes, or nil if the configuration puts all memory on one node.
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

// allocOnNode allocates n bytes from the pools of a reactor's node, counted from 1.
// If the node has no pools or the size is not pooled, it calls Alloc.
func (m *memory) allocOnNode(node, n int) (Buffer, error) {
	ps := m.nodePools[node]
	if ps == nil || n < 0 || n > MaxPooled {
		return m.Alloc(n)
	}
	if m.closing.Load() {
		return Buffer{}, errMemoryClosed
	}
	class := classOf(n)
	if s, i, ok := ps[class].get(); ok {
		return s.lend(i, n), nil
	}
	return m.allocSlow(&ps[class], class, n)
}

// allPools iterates over the pools of Alloc and those of the reactors' nodes.
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
