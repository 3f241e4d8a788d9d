//go:build linux && cgo && !portable

package ibv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
