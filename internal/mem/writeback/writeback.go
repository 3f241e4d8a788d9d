package writeback

// Instruction is a processor instruction that writes a cache line back to memory.
type Instruction uint8

// The instructions. None is the zero value: there is no such instruction.
const (
	None Instruction = iota
	CLWB
	CLFLUSHOPT
	CLFLUSH
	DCCVAP
)

var names = [...]string{"none", "clwb", "clflushopt", "clflush", "dc cvap"}

// String returns the assembler's name of the instruction.
func (i Instruction) String() string { return names[i] }

// Best returns the instruction of this processor that writes back at the least cost, or [None]. It
// does not block.
func Best() Instruction {
	for i := CLWB; i <= DCCVAP; i++ {
		if Supported(i) {
			return i
		}
	}
	return None
}

// Supported reports whether this processor has the instruction. It does not block.
func Supported(i Instruction) bool { return i != None && supported(i) }

// chunk is the length in bytes that one call in assembler writes back. The Go scheduler cannot
// interrupt such a call, and 256 KiB of modified lines take some 100 µs.
const chunk = 256 << 10

// Persist writes back the lines that hold the n bytes at addr, and returns when they have left the
// caches, with the address behind the last line. The processor must have instruction i, and the bytes
// must be mapped and must not be Go memory, which may move. Any goroutine may call it. It waits for
// the processor alone.
//
// Each piece ends with a fence, because the goroutine may continue on another thread, and a fence
// orders only the instructions of its own thread.
func Persist(i Instruction, addr, n uintptr) uintptr {
	if n == 0 {
		return addr
	}
	end, at := addr+n, addr&^(lineSize-1)
	for at < end {
		at = persist(i, at, min(end, at+chunk), lineSize)
	}
	return at
}
