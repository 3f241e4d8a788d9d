package mem

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrGoHeap means that memory passed to [Adopt] belongs to the Go runtime: its heap, a
	// goroutine stack, or the data of the running program.
	ErrGoHeap = errors.New("mem: memory belongs to the Go runtime")
	// ErrPinned means that an arena cannot be unmapped because registrations still hold pins on
	// it.
	ErrPinned = errors.New("mem: arena is pinned")
	// ErrUnmapped means that an arena was unmapped before it could be pinned.
	ErrUnmapped = errors.New("mem: arena is unmapped")
	// ErrSize means that a size is zero, negative, or too large to be rounded up to whole pages.
	ErrSize = errors.New("mem: bad size")
	// ErrNode means that [Options.Node] is not a NUMA node of this machine.
	ErrNode = errors.New("mem: no such NUMA node")
	// ErrNotMapped means that memory of the program is not wholly there: not mapped, not readable, or
	// beyond the end of its file. It matches EFAULT, as ibv_reg_mr returns.
	ErrNotMapped = fmt.Errorf("mem: memory is not mapped: %w", syscall.EFAULT)
	// ErrNotWritable means that memory of the program is mapped without the permission to write. It
	// matches EFAULT, as ibv_reg_mr returns.
	ErrNotWritable = fmt.Errorf("mem: memory is not writable: %w", syscall.EFAULT)
	// ErrPartlyOwned means that a part of the memory passed to [AdoptFor] is in an arena of [Map] or
	// [MapFile], and a part is not.
	ErrPartlyOwned = errors.New("mem: only a part of the memory is of the library's own")
)
