//go:build linux && cgo && !portable

package ibv

// #include <stdlib.h>
// #include "calls_more.h"
import "C"

import (
	"sync"
	"unsafe"
)

// forking serializes providers that load at the same time: concurrent calls of ibv_fork_init
// would initialize twice.
var forking sync.Mutex

// keepFork applies a policy, before anything is registered. A failure shows in ForkStatus only:
// most programs never fork.
func keepFork(t *verbsTable, p ForkPolicy) {
	forking.Lock()
	defer forking.Unlock()
	if p == ForkAuto && forkStatus(t) != ForkUnneeded {
		expectHugePages()
		C.shim_fork_init(t)
	}
}

// expectHugePages has ibv_fork_init look for huge pages, unless the environment says something about it already.
// Otherwise the library withholds pages of the base size from children, which the kernel refuses within a huge page,
// and the registration fails with EINVAL (rdma-core v65 libibverbs/memory.c, ibv_madvise_range; Linux mm/mmap.c,
// __split_vma). It is the environment of C, which children do not get: only ibv_fork_init reads it.
func expectHugePages() {
	name, value := C.CString("RDMAV_HUGEPAGES_SAFE"), C.CString("1")
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(value))
	C.setenv(name, value, 0) // fails only without memory; the C library copies both
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
