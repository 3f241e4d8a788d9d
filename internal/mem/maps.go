package mem

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// vma is one line of /proc/self/maps: a range with its path or its name.
type vma struct {
	start, end uint64
	readable   bool
	writable   bool
	name       string // path, [name], or "" for an anonymous range
}

// goName is the prefix of the names that the Go runtime gives to its own mappings, where the
// kernel was built with names for anonymous memory (CONFIG_ANON_VMA_NAME).
const goName = "[anon: Go: "

// parseMaps reads the format of proc_pid_maps(5):
//
//	start-end perms offset dev inode          name
//
// The kernel writes the lines in ascending order; judge relies on it, so parseMaps checks it. A line may
// overlap the line before: the file is read in parts, and a mapping may grow in between. The second
// line is then true of the addresses behind the first one, so parseMaps keeps that part (Linux 6.17,
// tools/testing/selftests/proc/proc-maps-race.c).
func parseMaps(text []byte) ([]vma, error) {
	var vmas []vma
	var last uint64
	for line := range bytes.Lines(text) {
		s := strings.TrimSuffix(string(line), "\n")
		span, rest, ok := strings.Cut(s, " ")
		from, to, ok2 := strings.Cut(span, "-")
		if !ok || !ok2 {
			return nil, fmt.Errorf("line %q has no range", s)
		}
		start, err := strconv.ParseUint(from, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: start: %w", s, err)
		}
		end, err := strconv.ParseUint(to, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: end: %w", s, err)
		}
		if start >= end || end <= last {
			return nil, fmt.Errorf("line %q: range is empty or out of order", s)
		}
		start, last = max(start, last), end
		perms, rest, _ := strings.Cut(rest, " ")
		// Skip offset, device and inode; the name follows the padding.
		for range 3 {
			_, rest, _ = strings.Cut(rest, " ")
		}
		vmas = append(vmas, vma{start: start, end: end, readable: strings.HasPrefix(perms, "r"), writable: strings.HasPrefix(perms, "rw"), name: strings.TrimLeft(rest, " ")})
	}
	return vmas, nil
}

// judge decides whether [addr, addr+n) may be adopted. heap is the address of an object on the Go
// heap, data the address of a variable in the program's data segment.
func judge(vmas []vma, addr, n, heap, data uint64) error {
	end := addr + n
	program := ""
	for _, v := range vmas {
		if v.start <= data && data < v.end {
			program = v.name
		}
	}
	heapFrom, heapTo := anonymousRun(vmas, heap)
	covered := addr // all bytes below are mapped
	prev := vma{}
	bss := false // v follows the program's segments without a gap
	for _, v := range vmas {
		bss = v.start == prev.end && v.name == "" && (bss || (program != "" && prev.name == program))
		prev = v
		if v.end <= addr || v.start >= end {
			continue
		}
		owner := ""
		switch {
		case strings.HasPrefix(v.name, goName):
			owner = v.name
		case v.start >= heapFrom && v.end <= heapTo:
			owner = "the Go heap"
		case bss, program != "" && v.name == program:
			owner = "the program's own segments"
		}
		if owner != "" {
			return fmt.Errorf("%w: %d bytes at %#x are in %s", ErrGoHeap, n, addr, owner)
		}
		if v.start > covered || !v.readable {
			break
		}
		covered = v.end
	}
	if covered < end {
		return fmt.Errorf("%w: %d bytes at %#x, mapped and readable only up to %#x", ErrNotMapped, n, addr, covered)
	}
	return nil
}

// anonymousRun returns the gapless run of anonymous mappings around addr. The runtime grows its
// heap contiguously, reserved parts included, far away from the addresses at which the kernel
// places mappings without a fixed address.
func anonymousRun(vmas []vma, addr uint64) (from, to uint64) {
	owned := func(v vma) bool { return v.name == "" || strings.HasPrefix(v.name, goName) }
	for i, v := range vmas {
		if addr < v.start || addr >= v.end {
			continue
		}
		from, to = v.start, v.end
		for j := i - 1; j >= 0 && vmas[j].end == from && owned(vmas[j]); j-- {
			from = vmas[j].start
		}
		for j := i + 1; j < len(vmas) && vmas[j].start == to && owned(vmas[j]); j++ {
			to = vmas[j].end
		}
	}
	return from, to
}
