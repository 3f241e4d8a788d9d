package runtime

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// Placement on a machine with several NUMA nodes. A reactor has a node,
// and so have its connections:
//
//	on the reactor's node   work requests, their elements, inline bytes, results and
//	                        completions (reactor.Config.Node); receive buffers
//	                        (memory.nodePools)
//	on MemoryConfig.Node,   memory that the program allocates; by default the device's
//	else the device's       node, and if that is unknown, the node of the first touch of
//	                        a page
//	anywhere                the Go heap: slots, free lists, submission stacks, tokens. Go
//	                        has no heap per node; a page is on the node of the thread that
//	                        first touched it. The same holds for the driver's own
//	                        memory, including its rings
//
// All placement is a preference (mem.Options.Node). Go's scheduler
// decides where the goroutine of a reactor runs.

// nodesFor returns the nodes that have reactors, counted from 1, or 0 alone where binding is
// useless. That is the node of the device if the system reports it (the argument device; -1 if
// unknown), because DMA and interrupts are nearest there; else every node on which this process
// may run. The arguments mems and cpus are the nodes whose memory, and the CPUs, that the process
// may use (a container may be restricted to some); the kernel refuses to prefer other nodes.
func nodesFor(device int, all []sys.Node, mems, cpus []int) []int {
	var nodes []int
	for _, n := range all {
		runs := slices.ContainsFunc(n.CPUs, func(c int) bool { return slices.Contains(cpus, c) })
		switch {
		case len(all) < 2 || !slices.Contains(mems, n.ID):
		case n.ID == device:
			return []int{n.ID + 1}
		case runs: // a node without a CPU for this process gets no reactor
			nodes = append(nodes, n.ID+1)
		}
	}
	if len(nodes) == 0 {
		return []int{0}
	}
	return nodes
}

// settle chooses the nodes of the runtime's reactors, and of its memory if not configured.
func (rt *Runtime) settle() error {
	all, err := sys.Nodes()
	if err != nil {
		return err
	}
	var mems, cpus []int
	for _, n := range all { // default if the system does not report them: everything
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

// startShards starts the reactors of every node, each with a completion
// vector of its own as far as the device has them. This spreads the
// events over the processors that handle the vectors' interrupts.
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
