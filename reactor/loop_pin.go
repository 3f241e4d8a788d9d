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

// pinned locks the calling goroutine to its thread and pins the thread to a processor of the node
// (counted from 1; 0 is any node). The processor is the one with the fewest pinned loops. Among
// several it is the last, because devices tend to interrupt the first. If choose finds no processor
// or the system cannot pin the thread, pinned only locks the goroutine to its thread. The same
// goroutine must call the returned function, which reverts both.
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
		} // else the thread stays locked, and ends with its goroutine
	}
}

// choose selects one of the allowed processors, of the node if node is not 0, and counts a loop for
// it. It fails if only one processor is allowed, because other goroutines need one, too.
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
