//go:build linux && !portable

package mem

import (
	"fmt"
	"os"
	"unsafe"
)

// programData is allocated by the linker: its mapping belongs to the running program and carries
// its path.
var programData byte = 1

// checkForeign refuses memory that Go owns or that is not mapped.
func checkForeign(addr, n uint64) error {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return checkHint(addr, n) // no /proc: judge by the address alone
	}
	vmas, err := parseMaps(text)
	if err != nil {
		return fmt.Errorf("mem: /proc/self/maps: %w", err)
	}
	return judge(vmas, addr, n, probeAddr(), uint64(uintptr(unsafe.Pointer(&programData))))
}
