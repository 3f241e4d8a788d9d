package writeback

import "golang.org/x/sys/cpu"

// lineSize is the smallest line of the data caches in bytes: CTR_EL0.DminLine, a logarithm of words
// of 4 bytes. Immutable.
var lineSize = uintptr(4) << (cacheType() >> 16 & 0xf)

// supported reports whether the system reports FEAT_DPB (Linux: HWCAP_DCPOP), which DC CVAP needs.
func supported(i Instruction) bool { return i == DCCVAP && cpu.ARM64.HasDCPOP }

func persist(_ Instruction, at, end, line uintptr) uintptr { return cvap(at, end, line) }

// cacheType returns CTR_EL0, which Linux lets programs read.
func cacheType() uint64

// cvap executes DC CVAP for each line from at to end, and then DSB SY. It returns the address behind
// the last line.
func cvap(at, end, line uintptr) uintptr
