package ibv

// ForkPolicy says what is done about fork(2). After a fork, the first write to a
// page that both processes have gives the writer a copy; when that is the parent,
// the device goes on with the old page, and what it writes there nobody sees.
// Linux 5.12 and later copy pages that a device holds for the child at once, so
// that nothing need be done there.
//
// Starting programs by os/exec is safe on every kernel: Go's child shares the
// address space until its exec and copies nothing (syscall/exec_linux.go:
// CLONE_VFORK|CLONE_VM). What forks truly is C code that calls fork, and a child
// in a user namespace of its own (SysProcAttr with CLONE_NEWUSER).
type ForkPolicy uint8

// The policies.
const (
	// ForkAuto asks the library to keep registered memory away from children
	// (MADV_DONTFORK), if the kernel does not copy it for them. It costs a system
	// call per registration there, and the children have no such memory. Where huge
	// pages are registered on such a kernel RDMAV_HUGEPAGES_SAFE=1 must be in the
	// environment too (ibv_fork_init(3)). That it cannot be had is no error:
	// [Provider.ForkStatus] tells.
	ForkAuto ForkPolicy = iota
	// ForkOff asks for nothing: for programs that do not fork, or by os/exec only.
	ForkOff
)

// ForkStatus is what holds for registered memory when the process forks.
//
// Implements: enum ibv_fork_status.
type ForkStatus int

// The states.
const (
	ForkUnknown  ForkStatus = iota - 1 // the library is too old to tell (before v35)
	ForkDisabled                       // a true fork may part the device from memory that is written then
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
