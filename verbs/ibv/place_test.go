//go:build linux && cgo && !portable

package ibv

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
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

// interrupt makes an interrupt of the device at parent, with the name of its handler.
func (m machine) interrupt(parent string, irq int, name, effective, permitted string) {
	m.t.Helper()
	m.file(fmt.Sprintf("sys/devices/%s/msi_irqs/%d", parent, irq), "msix\n")
	dir := fmt.Sprintf("proc/irq/%d/", irq)
	must.Do(m.t, os.MkdirAll(filepath.Join(m.root, dir, name), 0o755))
	m.file(dir+"smp_affinity_list", permitted+"\n")
	if effective != "" {
		m.file(dir+"effective_affinity_list", effective+"\n")
	}
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

// Rule: the processors of a vector are those of the interrupt whose name has its number; where one
// vector has none, nothing is known.
func TestProcessorsOfVectors(t *testing.T) {
	const two = 2
	for _, c := range []struct {
		what, names string // a format for the vector's number
		want        [][]int
	}{
		{"mlx5", "mlx5_comp%d@pci:0000:08:00.0", [][]int{{0}, {3}}},
		{"irdma", "irdma-0000:4b:00.0-CEQ-%d", [][]int{{0}, {3}}},
		{"efa", "efa-comp%d@pci:0000:08:00.0", [][]int{{0}, {3}}},
		{"erdma", "erdma-ceq%d@pci:0000:08:00.0", [][]int{{0}, {3}}},
		{"bnxt_re", "bnxt_re-nq-%d@pci:0000:08:00.0", nil},
		{"one name for all", "CEQ", nil},
		{"the same vector twice", "mlx5_comp1@pci:0000:08:00.0", nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := newMachine(t)
			m.device("d", pciFunction)
			name := func(v int) string {
				if c.what == "one name for all" || c.what == "the same vector twice" {
					return c.names
				}
				return fmt.Sprintf(c.names, v)
			}
			m.interrupt(pciFunction, 40, "mlx5_async2@pci:0000:08:00.0", "1", "0-3")
			m.interrupt(pciFunction, 42, name(1), "3", "0-3")
			m.interrupt(pciFunction, 41, name(0), "", "0") // of a kernel without effective_affinity
			if got := vectorCPUs(m.root, "d", two); !reflect.DeepEqual(got, c.want) {
				t.Errorf("the processors of the vectors are %v, want %v", got, c.want)
			}
			if got := vectorCPUs(m.root, "d", two+1); got != nil {
				t.Errorf("with a vector that has no interrupt the processors are %v, want none", got)
			}
		})
	}
	m := newMachine(t)
	m.device("sf", pciFunction+"/mlx5_core.sf.4")
	m.interrupt(pciFunction, 41, "mlx5_comp0@pci:0000:08:00.0", "0", "0")
	if got := vectorCPUs(m.root, "sf", 1); got != nil {
		t.Errorf("the processors of a subfunction's vectors are %v, want none: the interrupt is its PCI device's", got)
	}
}
