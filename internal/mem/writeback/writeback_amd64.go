package writeback

// The bits of CPUID that show the instructions (Intel SDM, volume 2, CPUID, leaves 1 and 7).
const (
	ebxCLFLUSHOPT = 1 << 23 // leaf 7
	ebxCLWB       = 1 << 24 // leaf 7
	edxCLFSH      = 1 << 19 // leaf 1
)

// lineSize is the length in bytes of a line, has the instructions: of this processor, immutable.
var lineSize, has = probe()

func probe() (line uintptr, has [DCCVAP + 1]bool) {
	last, _, _, _ := cpuid(0)
	_, b, _, d := cpuid(1)
	// In units of 8 bytes; an emulator may report none.
	if line = uintptr(b>>8&0xff) * 8; line == 0 || line&(line-1) != 0 {
		line = 64
	}
	has[CLFLUSH] = d&edxCLFSH != 0
	if last >= 7 {
		_, b, _, _ = cpuid(7)
		has[CLFLUSHOPT], has[CLWB] = b&ebxCLFLUSHOPT != 0, b&ebxCLWB != 0
	}
	return line, has
}

func supported(i Instruction) bool { return has[i] }

func persist(i Instruction, at, end, line uintptr) uintptr {
	switch i {
	case CLWB:
		return clwb(at, end, line)
	case CLFLUSHOPT:
		return clflushopt(at, end, line)
	default:
		return clflush(at, end, line)
	}
}

// cpuid returns the registers of a leaf, of its subleaf 0.
func cpuid(leaf uint32) (eax, ebx, ecx, edx uint32)

// clwb, clflushopt and clflush execute the instruction for each line from at to end, and then SFENCE.
// They return the address behind the last line.
func clwb(at, end, line uintptr) uintptr
func clflushopt(at, end, line uintptr) uintptr
func clflush(at, end, line uintptr) uintptr
