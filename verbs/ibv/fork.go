//go:build linux && cgo && !portable

package ibv

// #include "calls_more.h"
import "C"

// keepFork carries out a policy, before anything is registered. Its failure is
// left to ForkStatus: most programs never fork.
func keepFork(t *verbsTable, p ForkPolicy) {
	if p == ForkAuto && forkStatus(t) != ForkUnneeded {
		C.shim_fork_init(t)
	}
}

func forkStatus(t *verbsTable) ForkStatus { return ForkStatus(C.shim_fork_status(t)) }

// ForkStatus tells what holds for registered memory when the process forks, by
// the policy and the kernel. It loads the library. Any goroutine may call it.
// Errors: [LibraryError], [SymbolError].
//
// Implements: ibv_is_fork_initialized.
func (p *Provider) ForkStatus() (ForkStatus, error) {
	t, err := p.libs.verbs()
	if err != nil {
		return ForkUnknown, err
	}
	return forkStatus(t), nil
}
