//go:build linux && cgo && !portable

package ibv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// machine is a tree of files in place of the system's.
type machine struct {
	t    *testing.T
	root string
}

func (m machine) file(name, text string) {
	m.t.Helper()
	at := filepath.Join(m.root, name)
	must.Do(m.t, os.MkdirAll(filepath.Dir(at), 0o755))
	must.Do(m.t, os.WriteFile(at, []byte(text), 0o644))
}

// device makes an RDMA device whose parent is the given one.
func (m machine) device(name, parent string) {
	m.t.Helper()
	must.Do(m.t, os.MkdirAll(filepath.Join(m.root, "sys/devices", parent), 0o755))
	must.Do(m.t, os.MkdirAll(filepath.Join(m.root, "sys/class/infiniband", name), 0o755))
	must.Do(m.t, os.Symlink("../../../devices/"+parent, filepath.Join(m.root, "sys/class/infiniband", name, "device")))
}

func newMachine(t *testing.T) machine {
	return machine{t, must.Get(filepath.EvalSymlinks(t.TempDir()))(t)}
}

// The PCI function of these tests' devices.
const pciFunction = "pci0000:00/0000:00:03.0/0000:08:00.0"

// Rule: the node of a device is that of the nearest device above it that has one.
func TestNodeOfADeviceIsThatOfItsPCIDevice(t *testing.T) {
	m := newMachine(t)
	m.file("sys/devices/"+pciFunction+"/numa_node", "1\n")
	m.file("sys/devices/pci0000:80/0000:80:01.0/numa_node", "0\n")
	m.file("sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/numa_node", "-1\n")
	m.file("sys/devices/pci0000:c0/0000:c1:00.0/numa_node", "-1\n")
	m.device("function", pciFunction)
	m.device("subfunction", pciFunction+"/mlx5_core.sf.4")
	m.device("below_a_bridge", "pci0000:80/0000:80:01.0/0000:81:00.0")
	m.device("one_node", "pci0000:c0/0000:c1:00.0")
	m.device("virtual", "virtual/net/dummy0")
	must.Do(t, os.MkdirAll(filepath.Join(m.root, "sys/class/infiniband/software"), 0o755)) // has no parent
	m.file("numa_node", "7\n")                                                             // not of a device
	for device, want := range map[string]int{"function": 1, "subfunction": 1, "below_a_bridge": 0, "one_node": -1,
		"virtual": -1, "software": -1, "absent": -1} {
		if got := numaNode(m.root, device); got != want {
			t.Errorf("the node of %s is %d, want %d", device, got, want)
		}
	}
}
