package ibv

// ForkPolicy is the policy for fork(2). After a fork, the first write to a shared page gives the
// writer a copy. If the writer is the parent, the device continues with the old page, and the
// parent does not see what the device writes there. Linux 5.12 and later copy pages that a device
// uses for the child at the fork, so that nothing need be done there.
//
// Starting programs with os/exec is safe on all kernels: Go's child shares the address space
// until its exec and copies nothing (syscall/exec_linux.go: CLONE_VFORK|CLONE_VM). A real fork
// occurs in C code that calls fork, and for a child in a user namespace of its own (SysProcAttr
// with CLONE_NEWUSER).
type ForkPolicy uint8

// The policies.
const (
	// ForkAuto makes the library withhold registered memory from children (MADV_DONTFORK), if the
	// kernel does not copy it for them. It costs a system call per registration there, and the
	// children do not have that memory. RDMAV_HUGEPAGES_SAFE is set in C's environment there, so that
	// huge pages can be registered (ibv_fork_init(3)); each registration then also reads /proc/self/smaps.
	// A failure is no error: [Provider.ForkStatus] reports it.
	ForkAuto ForkPolicy = iota
	// ForkOff does nothing: for programs that do not fork, or use os/exec only.
	ForkOff
)

// ForkStatus describes how registered memory behaves when the process forks.
//
// Implements: enum ibv_fork_status.
type ForkStatus int

// The states.
const (
	ForkUnknown  ForkStatus = iota - 1 // the library is too old to report it (before v35)
	ForkDisabled                       // a real fork may detach the device from memory that is written afterwards
	ForkEnabled                        // children do not have registered memory
	ForkUnneeded                       // the kernel copies it for them
)

// String is the name in <infiniband/verbs.h> without its IBV_FORK_ prefix.
func (s ForkStatus) String() string {
	switch s {
	case ForkDisabled:
		return "DISABLED"
	case ForkEnabled:
		return "ENABLED"
	case ForkUnneeded:
		return "UNNEEDED"
	}
	return "UNKNOWN"
}
