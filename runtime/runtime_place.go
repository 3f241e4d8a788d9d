package runtime

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// This file places reactors and memory on a machine with several NUMA nodes. Each reactor is
// assigned a node. Memory is placed as follows:
//
//	on the reactor's node   work requests, their elements, inline bytes, results and
//	                        completions (reactor.Config.Node); receive buffers
//	                        (memory.nodePools), unless MemoryConfig.Node is set
//	on MemoryConfig.Node    memory that the program allocates. By default this is the
//	                        device's node. If the device's node is unknown, each page is
//	                        on the node of the thread that first touches it
//	anywhere                the Go heap: slots, free lists, submission stacks, tokens. Go
//	                        has no heap per node; a page is on the node of the thread that
//	                        first touched it. The same holds for the driver's own
//	                        memory, including its rings
//
// All placement is a preference (mem.Options.Node). Go's scheduler decides where the goroutine of a
// reactor runs.

// nodesFor returns the NUMA nodes that get reactors, counted from 1. The arguments count from 0:
//
//	device       the node of the device; -1 if unknown
//	all          the nodes of the machine
//	mems, cpus   the nodes whose memory this process may use, and the CPUs on which it may
//	             run: a container may be restricted to some
//
// If the device's node is known, the result is that node, because DMA and interrupts are nearest
// there. Otherwise it is every node on which the process may run. Nodes that are not in mems are
// left out, because the kernel refuses to prefer them. If no node is left, or the machine has only
// one, the result is [0]: no reactor is bound to a node.
func nodesFor(device int, all []sys.Node, mems, cpus []int) []int {
	var nodes []int
	for _, n := range all {
		runs := slices.ContainsFunc(n.CPUs, func(c int) bool { return slices.Contains(cpus, c) })
		switch {
		case len(all) < 2 || !slices.Contains(mems, n.ID):
		case n.ID == device:
			return []int{n.ID + 1}
		case runs: // on a node without a CPU for this process no reactor could run
			nodes = append(nodes, n.ID+1)
		}
	}
	if len(nodes) == 0 {
		return []int{0}
	}
	return nodes
}

// The method settle chooses the nodes of the reactors. If MemoryConfig.Node is 0 and the reactors
// are on the device's node, it also chooses that node for the memory.
func (rt *Runtime) settle() error {
	all, err := sys.Nodes()
	if err != nil {
		return err
	}
	var mems, cpus []int
	for _, n := range all { // everything, if the system does not report the limits
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

// startShards starts Config.Reactors reactors on every node. Each reactor gets a completion vector
// of its own, if the device has enough of them. So different processors handle the interrupts of
// the completion vectors.
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
