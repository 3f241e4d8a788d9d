//go:build linux && cgo && !portable

package ibv

// #include "calls_more.h"
import "C"

import "sync"

// forking serializes providers that load at the same time: concurrent calls of ibv_fork_init
// would initialize twice.
var forking sync.Mutex

// keepFork applies a policy, before anything is registered. A failure shows in ForkStatus only:
// most programs never fork.
func keepFork(t *verbsTable, p ForkPolicy) {
	forking.Lock()
	defer forking.Unlock()
	if p == ForkAuto && forkStatus(t) != ForkUnneeded {
		C.shim_fork_init(t)
	}
}

func forkStatus(t *verbsTable) ForkStatus { return ForkStatus(C.shim_fork_status(t)) }

// ForkStatus reports how registered memory behaves when the process forks, by the policy and the
// kernel. It loads the library. Any goroutine may call it. Errors: [LibraryError], [SymbolError].
//
// Implements: ibv_is_fork_initialized.
func (p *Provider) ForkStatus() (ForkStatus, error) {
	t, err := p.libs.verbs()
	if err != nil {
		return ForkUnknown, err
	}
	return forkStatus(t), nil
}
