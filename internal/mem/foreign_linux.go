//go:build linux && !portable

package mem

import (
	"fmt"
	"os"
	"strings"
	"unsafe"
)

// programData is allocated by the linker: its mapping belongs to the running program and carries
// its path.
var programData byte = 1

// checkForeign refuses memory that Go owns or that is not mapped. It returns what it knows of the
// memory for Arena.Check.
func checkForeign(addr, n uint64) ([]part, error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, checkHint(addr, n) // no /proc: judge by the address alone
	}
	vmas, err := parseMaps(text)
	if err != nil {
		return nil, fmt.Errorf("mem: /proc/self/maps: %w", err)
	}
	if err := judge(vmas, addr, n, probeAddr(), uint64(uintptr(unsafe.Pointer(&programData)))); err != nil {
		return nil, err
	}
	return partsOf(vmas, addr, n), nil
}

// isDevice reports whether a mapping with this name is of a device: that has no end as a file has, and
// to read it may have an effect.
func isDevice(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode()&os.ModeDevice != 0
}

// partsOf returns the parts of [addr, addr+n), which judge has accepted.
func partsOf(vmas []vma, addr, n uint64) (parts []part) {
	for _, v := range vmas {
		if v.end <= addr || v.start >= addr+n {
			continue
		}
		parts = append(parts, part{v.start, v.end, v.writable, strings.HasPrefix(v.name, "/") && !isDevice(v.name)})
	}
	return parts
}
