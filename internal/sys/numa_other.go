//go:build !linux || portable

package sys

import "fmt"

// Nodes returns one node with all processors of this process.
func Nodes() ([]Node, error) { return singleNode(), nil }

// NodesAt is [Nodes]: there is no directory to read here.
func NodesAt(string) ([]Node, error) { return singleNode(), nil }

// MemNodes fails with [ErrUnsupported].
func MemNodes() ([]int, error) {
	return nil, fmt.Errorf("sys: NUMA nodes of memory: %w", ErrUnsupported)
}

// CurrentNode returns 0.
func CurrentNode() int { return 0 }

// PinThread fails with [ErrUnsupported].
func PinThread(cpus []int) error {
	return fmt.Errorf("sys: pinning to processors %v: %w", cpus, ErrUnsupported)
}

// ThreadCPUs fails with [ErrUnsupported].
func ThreadCPUs() ([]int, error) {
	return nil, fmt.Errorf("sys: affinity of the thread: %w", ErrUnsupported)
}

// OpenFDs fails with [ErrUnsupported].
func OpenFDs() (map[int]string, error) {
	return nil, fmt.Errorf("sys: open descriptors: %w", ErrUnsupported)
}
