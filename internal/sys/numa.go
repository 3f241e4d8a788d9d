package sys

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// ErrUnsupported means that this build or system lacks the feature.
var ErrUnsupported = errors.ErrUnsupported

// Node is one NUMA node.
type Node struct {
	ID       int    // the system's number of it
	CPUs     []int  // its processors, ascending; none for a memory-only node
	MemBytes uint64 // its memory; 0 if unknown
}

// maxCPU bounds processor numbers: above the limit of any kernel (CONFIG_NR_CPUS is at most
// 8192), and low enough for a list in a file not to exhaust memory.
const maxCPU = 1 << 16

// ParseList reads the kernel's list format, such as "0-3,8,10-11": ascending,
// without overlap, possibly empty (cpuset(7), "List format"). Numbers are below 65,536.
func ParseList(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := parseNumber(first)
		if err != nil {
			return nil, fmt.Errorf("sys: list %q: %w", s, err)
		}
		to := from
		if isRange {
			if to, err = parseNumber(last); err != nil {
				return nil, fmt.Errorf("sys: list %q: %w", s, err)
			}
		}
		if to < from || (len(list) > 0 && from <= list[len(list)-1]) {
			return nil, fmt.Errorf("sys: list %q: %q is not ascending", s, part)
		}
		for i := from; i <= to; i++ {
			list = append(list, i)
		}
	}
	return list, nil
}

func parseNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, err
	}
	if n >= maxCPU {
		return 0, fmt.Errorf("%d is not below %d", n, maxCPU)
	}
	return int(n), nil
}

// parseMemTotal reads "Node 0 MemTotal: 8144 kB" from a node's meminfo. It returns 0 if there is
// no such line.
func parseMemTotal(s string) (uint64, error) {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) != 5 || f[2] != "MemTotal:" || f[4] != "kB" {
			continue
		}
		kb, err := strconv.ParseUint(f[3], 10, 54) // 54 bits: no overflow in bytes
		if err != nil {
			return 0, fmt.Errorf("sys: meminfo line %q: %w", line, err)
		}
		return kb << 10, nil
	}
	return 0, nil
}

// parseMemNodes reads "Mems_allowed_list:	0-1" from a thread's status.
func parseMemNodes(s string) ([]int, error) {
	for line := range strings.Lines(s) {
		if list, ok := strings.CutPrefix(line, "Mems_allowed_list:"); ok {
			return ParseList(list)
		}
	}
	return nil, fmt.Errorf("sys: NUMA nodes of memory: %w", ErrUnsupported) // a kernel without cpusets
}

// singleNode is the result for a machine that does not report its nodes.
func singleNode() []Node {
	n := Node{CPUs: make([]int, runtime.NumCPU())}
	for i := range n.CPUs {
		n.CPUs[i] = i
	}
	return []Node{n}
}
