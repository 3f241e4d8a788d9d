//go:build linux && cgo && !portable

package ibv

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// system is the root of the system's files; tests have their own.
const system = "/"

// numaNode returns the NUMA node of a device as the system reports it; -1 when unknown. Only a PCI
// device has the file numa_node (Linux drivers/pci/pci-sysfs.c, numa_node_show). The parent of a
// device on a subfunction is on the auxiliary bus (drivers/net/ethernet/mellanox/mlx5/core/sf/dev/driver.c,
// mlx5_sf_dev_probe), and that of some others on virtio's: the node is then that of the PCI device above.
func numaNode(root, device string) int {
	top := filepath.Join(root, "sys/devices")
	dir, err := filepath.EvalSymlinks(filepath.Join(root, "sys/class/infiniband", device, "device"))
	for ; err == nil && strings.HasPrefix(dir, top+"/"); dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "numa_node"))
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// vectorName is the part of an interrupt's name that has the number of the completion vector:
//
//	mlx5_comp3@pci:0000:08:00.0     drivers/net/ethernet/mellanox/mlx5/core/pci_irq.c, irq_set_name
//	irdma-0000:4b:00.0-CEQ-3        drivers/infiniband/hw/irdma/hw.c, irdma_cfg_ceq_vector; 0 is AEQCEQ-0
//	efa-comp3@pci:0000:08:00.0      drivers/infiniband/hw/efa/efa_main.c, efa_setup_comp_irq
//	erdma-ceq3@pci:0000:08:00.0     drivers/infiniband/hw/erdma/erdma_eq.c, erdma_set_ceq_irq
//
// Others, and old kernels, have names without it: bnxt_re takes no notice of the vector.
var vectorName = regexp.MustCompile(`(?i:_comp|-comp|ceq-?)([0-9]+)(?:@|$)`)

// vectorCPUs returns the processors that handle the interrupt of each of the n completion vectors
// of a device; nil if that of one is unknown. The interrupts are those of the device itself: a
// subfunction takes some of its PCI device's, and their numbers are not its vectors' (pci_irq.c,
// mlx5_irq_request).
func vectorCPUs(root, device string, n int) [][]int {
	irqs, err := os.ReadDir(filepath.Join(root, "sys/class/infiniband", device, "device/msi_irqs"))
	if err != nil {
		return nil
	}
	found := map[int][]int{}
	for _, irq := range irqs {
		dir := filepath.Join(root, "proc/irq", irq.Name())
		v, ok := vectorOf(dir)
		if !ok {
			continue
		}
		if _, twice := found[v]; twice { // not the numbers of vectors
			return nil
		}
		if cpus := interruptCPUs(dir); len(cpus) > 0 {
			found[v] = cpus
		}
	}
	all := make([][]int, n)
	for v := range all {
		if all[v] = found[v]; all[v] == nil {
			return nil
		}
	}
	return all
}

// vectorOf returns the completion vector of an interrupt, whose folder in /proc/irq has a folder
// with the name of each handler.
func vectorOf(dir string) (vector int, ok bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, false
	}
	for _, e := range entries {
		if m := vectorName.FindStringSubmatch(e.Name()); e.IsDir() && m != nil {
			v, err := strconv.Atoi(m[1])
			return v, err == nil
		}
	}
	return 0, false
}

// interruptCPUs returns the processors that handle an interrupt: those in use, or the permitted
// ones on kernels that do not report it (before 4.13, and without GENERIC_IRQ_EFFECTIVE_AFF_MASK).
func interruptCPUs(dir string) []int {
	for _, name := range [...]string{"effective_affinity_list", "smp_affinity_list"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			if cpus, err := sys.ParseList(string(text)); err == nil && len(cpus) > 0 {
				return cpus
			}
		}
	}
	return nil
}
