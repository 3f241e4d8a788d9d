//go:build linux && !portable

package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nodeRoot is the kernel's directory of NUMA nodes.
const nodeRoot = "/sys/devices/system/node"

// Nodes returns the online NUMA nodes, ascending, read from /sys/devices/system/node. On a kernel
// that lists none it returns one node with all processors. The processors are those of the node,
// not only those this process may run on: see [ThreadCPUs].
func Nodes() ([]Node, error) { return NodesAt(nodeRoot) }

// NodesAt is [Nodes] with another directory in place of the kernel's.
func NodesAt(root string) ([]Node, error) {
	online, err := os.ReadFile(filepath.Join(root, "online"))
	if errors.Is(err, fs.ErrNotExist) {
		return singleNode(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("sys: NUMA nodes: %w", err)
	}
	ids, err := ParseList(string(online))
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return singleNode(), nil
	}
	nodes := make([]Node, 0, len(ids))
	for _, id := range ids {
		dir := filepath.Join(root, "node"+strconv.Itoa(id))
		n := Node{ID: id}
		cpus, err := os.ReadFile(filepath.Join(dir, "cpulist"))
		if err != nil {
			return nil, fmt.Errorf("sys: NUMA node %d: %w", id, err)
		}
		if n.CPUs, err = ParseList(string(cpus)); err != nil {
			return nil, fmt.Errorf("sys: NUMA node %d: %w", id, err)
		}
		// Missing in some containers: then the size is unknown, which is no error.
		if info, err := os.ReadFile(filepath.Join(dir, "meminfo")); err == nil {
			if n.MemBytes, err = parseMemTotal(string(info)); err != nil {
				return nil, fmt.Errorf("sys: NUMA node %d: %w", id, err)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// MemNodes returns the NUMA nodes whose memory the calling thread may use, ascending: a container
// may be restricted to some of [Nodes].
//
// Errors: those of reading /proc/thread-self/status.
//
// Implements: cpuset(7), Mems_allowed_list.
func MemNodes() ([]int, error) {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil, fmt.Errorf("sys: NUMA nodes of memory: %w", err)
	}
	return parseMemNodes(string(status))
}

// CurrentNode returns the NUMA node of the processor that the calling thread runs on right now, 0
// if the system does not report it. It enters the kernel and does not block. The result stays
// valid only on a pinned thread.
//
// Implements: getcpu(2).
func CurrentNode() int {
	var cpu, node uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), uintptr(unsafe.Pointer(&node)), 0); errno != 0 {
		return 0
	}
	return int(node)
}

// PinThread restricts the calling thread to these processors. The caller has locked its goroutine
// to the thread (runtime.LockOSThread), and afterwards restores the earlier result of
// [ThreadCPUs], or lets the thread end.
//
// Errors: an empty list or an invalid processor number.
//
// Implements: sched_setaffinity(2).
func PinThread(cpus []int) error {
	if len(cpus) == 0 {
		return errors.New("sys: pinning to no processor")
	}
	set := unix.NewCPUSet(maxCPU)
	for _, c := range cpus {
		if c < 0 || c >= maxCPU {
			return fmt.Errorf("sys: pinning to processor %d: not in [0, %d)", c, maxCPU)
		}
		set.Set(c)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("sys: pinning to processors %v: %w", cpus, err)
	}
	return nil
}

// ThreadCPUs returns the processors that the calling thread may run on, ascending.
//
// Implements: sched_getaffinity(2).
func ThreadCPUs() ([]int, error) {
	set := unix.NewCPUSet(maxCPU)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return nil, fmt.Errorf("sys: affinity of the thread: %w", err)
	}
	var cpus []int
	for c := range maxCPU {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}

// OpenFDs returns the open descriptors of this process with the kernel's description of each
// ("/dev/null", "anon_inode:[eventfd]"). Tests use it to find leaks.
func OpenFDs() (map[int]string, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("sys: open descriptors: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("sys: open descriptors: %w", err)
	}
	fds := make(map[int]string, len(names))
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd == int(dir.Fd()) {
			continue
		}
		// One that was closed since is not open.
		if what, err := os.Readlink("/proc/self/fd/" + name); err == nil {
			fds[fd] = what
		}
	}
	return fds, nil
}
