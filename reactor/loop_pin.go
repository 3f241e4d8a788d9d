package reactor

import (
	"runtime"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// pins counts the loops pinned to each processor.
var pins struct {
	sync.Mutex
	loops map[int]int
}

// pinned locks the calling goroutine to its thread and pins the thread to a processor. The argument
// node is the number of a NUMA node plus 1, or 0 for any node. If no processor is suitable (see
// choose), or if the system cannot pin the thread, the goroutine is only locked to its thread. The
// same goroutine must call the returned function, which unpins the thread and unlocks the goroutine.
func pinned(node int) (undo func()) {
	runtime.LockOSThread()
	before, err := sys.ThreadCPUs()
	if err != nil {
		return runtime.UnlockOSThread
	}
	cpu, ok := choose(node, before)
	if !ok {
		return runtime.UnlockOSThread
	}
	if sys.PinThread([]int{cpu}) != nil {
		leavePin(cpu)
		return runtime.UnlockOSThread
	}
	return func() {
		leavePin(cpu)
		if sys.PinThread(before) == nil {
			runtime.UnlockOSThread()
		} // otherwise the thread stays locked, and ends with its goroutine
	}
}

// choose selects the allowed processor with the fewest pinned loops, and adds the caller's loop to
// the count of this processor. If several processors have equally few loops, choose selects the
// processor with the highest number, because devices tend to interrupt the processors with low
// numbers. The argument node is the number of a NUMA node plus 1, or 0 for any node. If the system
// lists this node, choose considers only the processors of the node, and returns false if none of
// these processors is allowed. choose also returns false if only one processor is allowed, because
// other goroutines need a processor, too.
func choose(node int, allowed []int) (cpu int, ok bool) {
	if len(allowed) < 2 {
		return 0, false
	}
	of := allowed
	if nodes, err := sys.Nodes(); err == nil && node > 0 {
		for _, n := range nodes {
			if n.ID == node-1 {
				of = slices.DeleteFunc(slices.Clone(n.CPUs), func(c int) bool { return !slices.Contains(allowed, c) })
			}
		}
	}
	if len(of) == 0 {
		return 0, false
	}
	pins.Lock()
	defer pins.Unlock()
	if pins.loops == nil {
		pins.loops = map[int]int{}
	}
	cpu = of[len(of)-1]
	for _, c := range slices.Backward(of) {
		if pins.loops[c] < pins.loops[cpu] {
			cpu = c
		}
	}
	pins.loops[cpu]++
	return cpu, true
}

func leavePin(cpu int) {
	pins.Lock()
	pins.loops[cpu]--
	pins.Unlock()
}
