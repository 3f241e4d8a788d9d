package runtime

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// Where things are on a machine with several NUMA nodes. A reactor has a node, and so
// have its connections:
//
//	on the reactor's node   work requests, their elements, inline bytes, results and
//	                        completions (reactor.Config.Node); receive buffers
//	                        (memory.near)
//	on MemoryConfig.Node,   what a program allocates; by default the device's node,
//	else the device's       and where that is not known the node of whoever touches a
//	                        page first
//	anywhere                the Go heap: slots, free lists, submission stacks, turns. Go
//	                        has no heap per node; they lie where the thread ran that
//	                        touched their page first. What the driver allocates for
//	                        itself, its rings among it, too
//
// All of it is preferred, not forced (mem.Options.Node). A reactor's goroutine runs
// where Go's scheduler puts it.

// nodesFor are the nodes that have reactors, counted from 1, or 0 alone where there is
// nothing to bind to: that of the device, if the system says which it is (device; -1 if
// not), because there its DMA and its interrupts are nearest; else all that this
// process may run on. mems are the nodes whose memory it may have (a container may be
// given some); the kernel refuses to prefer another.
func nodesFor(device int, all []sys.Node, mems, cpus []int) []int {
	var nodes []int
	for _, n := range all {
		runs := slices.ContainsFunc(n.CPUs, func(c int) bool { return slices.Contains(cpus, c) })
		switch {
		case len(all) < 2 || !slices.Contains(mems, n.ID):
		case n.ID == device:
			return []int{n.ID + 1}
		case runs: // one of memory only has none
			nodes = append(nodes, n.ID+1)
		}
	}
	if len(nodes) == 0 {
		return []int{0}
	}
	return nodes
}

// settle decides on which nodes the runtime has reactors, and its memory where nobody
// chose.
func (rt *Runtime) settle() error {
	all, err := sys.Nodes()
	if err != nil {
		return err
	}
	var mems, cpus []int
	for _, n := range all { // where the system does not tell: everything
		mems, cpus = append(mems, n.ID), append(cpus, n.CPUs...)
	}
	if told, err := sys.MemNodes(); err == nil {
		mems = told
	}
	if told, err := sys.ThreadCPUs(); err == nil {
		cpus = told
	}
	device := rt.dev.Device().Node
	rt.nodes = nodesFor(device, all, mems, cpus)
	if m := &rt.cfg.Memory; m.Node == 0 && len(rt.nodes) == 1 && rt.nodes[0] == device+1 {
		m.Node = rt.nodes[0]
	}
	return nil
}

// startShards makes the reactors of every node, each with a completion vector of its
// own as far as the device has them: its events are spread over the processors that
// the vectors' interrupts go to.
func (rt *Runtime) startShards(vectors int) error {
	for _, node := range rt.nodes {
		for range rt.cfg.Reactors {
			s, err := newShard(rt, node, len(rt.shards)%max(vectors, 1))
			if err != nil {
				return err
			}
			rt.shards = append(rt.shards, s)
		}
	}
	return nil
}
