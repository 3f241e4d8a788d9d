package runtime

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// This file places reactors and memory on a machine with several NUMA nodes. Each reactor is
// assigned a node. Memory is placed as follows:
//
//	on the reactor's node   work requests, scatter-gather elements, inline bytes, results of atomics,
//	                        completions (reactor.Config.Node); receive buffers
//	                        (memory.nodePools), unless MemoryConfig.Node is set
//	on MemoryConfig.Node    memory that the program allocates. The default is the device's
//	                        node. If the device's node is unknown, each page is on the node
//	                        of the thread that first touches the page
//	anywhere                the Go heap: slots, free lists, submission stacks, tokens. Go
//	                        has no heap per node; each page is on the node of the thread that
//	                        first touches the page. The same holds for the memory of the device
//	                        driver, including its rings
//
// The kernel takes a node as a preference (mem.Options.Node), and may use another node. Go's scheduler
// decides on which processor the goroutine of a reactor runs.

// nodesFor returns the NUMA nodes that get reactors. The result numbers the nodes from 1, and 0
// means no particular node. The arguments number the nodes from 0:
//
//	device   the node of the device; -1 if unknown
//	all      the nodes of the machine
//	mems     the nodes whose memory this process may use (a container may have only some nodes)
//	cpus     the CPUs on which this process may run (a container may have only some CPUs)
//
// Nodes that are not in mems are left out, because the kernel refuses to prefer them. If the machine
// has only one node, the result is [0]. Otherwise the result is the first of these that exists:
//
//   - the device's node, because DMA and interrupts are nearest there
//   - all nodes with a CPU on which the process may run
//   - [0]
func nodesFor(device int, all []sys.Node, mems, cpus []int) []int {
	var nodes []int
	for _, n := range all {
		runs := slices.ContainsFunc(n.CPUs, func(c int) bool { return slices.Contains(cpus, c) })
		switch {
		case len(all) < 2 || !slices.Contains(mems, n.ID):
		case n.ID == device:
			return []int{n.ID + 1}
		case runs: // a reactor can run there
			nodes = append(nodes, n.ID+1)
		}
	}
	if len(nodes) == 0 {
		return []int{0}
	}
	return nodes
}

// Runtime.settle sets rt.nodes, the nodes of the reactors. If MemoryConfig.Node is 0 and the reactors
// are on the device's node, settle sets MemoryConfig.Node to this node.
func (rt *Runtime) settle() error {
	all, err := sys.Nodes()
	if err != nil {
		return err
	}
	var mems, cpus []int
	for _, n := range all { // if the system does not report the limits of the process, all nodes and CPUs count
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

// startShards starts Config.Reactors reactors on every node of rt.nodes. If the device has enough
// completion vectors, each reactor has its own vector. Then different processors can handle the
// interrupts of the reactors.
func (rt *Runtime) startShards(vectors int) error {
	all, err := sys.Nodes()
	if err != nil {
		return err
	}
	for i, vector := range rt.vectors(vectors, all) {
		s, err := newShard(rt, rt.nodes[i/rt.cfg.Reactors], vector)
		if s != nil {
			rt.shards = append(rt.shards, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// vectors is vectorsFor of the runtime's reactors and device, which has n vectors, on a machine with these nodes.
func (rt *Runtime) vectors(n int, all []sys.Node) []int {
	return vectorsFor(rt.nodes, rt.cfg.Reactors, n, rt.dev.Device().VectorCPUs, all)
}

// vectorsFor returns the completion vector of each reactor: for each of the nodes, numbered as in
// nodesFor, those of its reactors. The device has n vectors, and cpus are the processors that handle
// the interrupts of each vector, or nil if they are unknown. A reactor gets a vector whose interrupt
// arrives on its node, if there is such a vector, because the interrupt then wakes a thread of this
// node. Among several vectors it gets the first of those that have the fewest reactors.
func vectorsFor(nodes []int, reactors, n int, cpus [][]int, all []sys.Node) (chosen []int) {
	used := make([]int, max(n, 1))
	for _, node := range nodes {
		near := func(vector int) bool {
			return vector < len(cpus) && slices.ContainsFunc(all, func(at sys.Node) bool {
				return at.ID == node-1 && slices.ContainsFunc(cpus[vector], func(c int) bool { return slices.Contains(at.CPUs, c) })
			})
		}
		for range reactors {
			best := 0
			for v := range used {
				if near(v) && !near(best) || near(v) == near(best) && used[v] < used[best] {
					best = v
				}
			}
			used[best]++
			chosen = append(chosen, best)
		}
	}
	return chosen
}
