package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tree is the system's files; tests have a folder of their own in place of "/".
type tree string

// path is the place of a file, named by its parts.
func (t tree) path(parts ...string) string {
	return filepath.Join(append([]string{string(t)}, parts...)...)
}

// text is a file's text without space around it; errors name the file as in the system.
func (t tree) text(parts ...string) (string, error) {
	b, err := os.ReadFile(t.path(parts...))
	if err != nil {
		return "", t.failed(err, parts...)
	}
	return strings.TrimSpace(string(b)), nil
}

func (t tree) failed(err error, parts ...string) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("/%s: %w", filepath.Join(parts...), err)
}

func (t tree) read(parts ...string) Item[string] { return item(t.text(parts...)) }

// names are the entries of a folder; none if it is not there.
func (t tree) names(parts ...string) (names []string) {
	entries, err := os.ReadDir(t.path(parts...))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// link is the last part of where a symbolic link points.
func (t tree) link(parts ...string) (string, error) {
	to, err := os.Readlink(t.path(parts...))
	if err != nil {
		return "", t.failed(err, parts...)
	}
	return filepath.Base(to), nil
}

func (t tree) has(parts ...string) bool {
	_, err := os.Lstat(t.path(parts...))
	return err == nil
}

// device reads what the system's files say of an RDMA device.
func (t tree) device(name string) DevicePlace {
	d := DevicePlace{Name: name}
	at := "sys/class/infiniband/" + name
	if !t.has(at) {
		explainAll(&d, "/"+at+" is not there: no device of the kernel")
		return d
	}
	parent := at + "/device"
	d.Board, d.Firmware, d.NodeType = t.read(at, "board_id"), t.read(at, "fw_ver"), t.read(at, "node_type")
	if !t.has(parent) {
		d.Function = known("software, without a device below")
		// The kernel's software drivers differ in their node type (include/rdma/ib_verbs.h, rdma_node_type).
		switch kind := d.NodeType; {
		case kind.Value == nil:
		case strings.HasPrefix(*kind.Value, "1:"):
			d.Driver = known("rdma_rxe, by the node type")
		case strings.HasPrefix(*kind.Value, "4:"):
			d.Driver = known("siw, by the node type")
		}
		explainAll(&d, "the device is software")
	} else {
		d.Driver, d.Function, d.VFs = item(t.link(parent, "driver")), t.function(parent), t.virtualFunctions(parent)
		d.PCILink, d.IOMMU = t.pciLink(parent), t.iommu(parent)
	}
	d.Traffic = known(t.roceDefaults(name))
	return d
}

// function tells a physical function from a virtual one and a subfunction: physfn is in the folder of a
// virtual function (Linux drivers/pci/iov.c, pci_iov_sysfs_link), and a subfunction is on the auxiliary
// bus (drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c, mlx5_sf_dev_add).
func (t tree) function(parent string) Item[string] {
	bus, err := t.link(parent, "subsystem")
	if err != nil {
		return unknown[string]("%v", err)
	}
	real, err := filepath.EvalSymlinks(t.path(parent))
	if err != nil {
		return unknown[string]("%v", t.failed(err, parent))
	}
	switch {
	case bus == "auxiliary" && strings.Contains(filepath.Base(real), ".sf."):
		return known("SF, a subfunction of a PCI device")
	case bus == "auxiliary":
		return known("auxiliary device of a PCI device")
	case bus != "pci":
		return known("on the bus " + bus)
	case t.has(parent, "physfn"):
		return known("VF, a virtual function")
	case t.has(parent, "sriov_totalvfs"):
		return known("PF, a physical function")
	}
	return known("PCI function without SR-IOV (of a virtual machine, possibly a VF of its host)")
}

func (t tree) virtualFunctions(parent string) Item[int] {
	if !t.has(parent, "sriov_totalvfs") {
		return unknown[int]("no SR-IOV in this function")
	}
	n := 0
	for _, name := range t.names(parent) {
		if strings.HasPrefix(name, "virtfn") {
			n++
		}
	}
	return known(n)
}

func (t tree) pciLink(parent string) Item[string] {
	var parts []string
	for _, f := range [...]string{"current_link_speed", "current_link_width", "max_link_speed", "max_link_width"} {
		text, err := t.text(parent, f)
		if err != nil {
			return unknown[string]("%v", err)
		}
		parts = append(parts, text)
	}
	return known(fmt.Sprintf("%s x%s of %s x%s", parts[0], parts[1], parts[2], parts[3]))
}

// iommu is the group of the device and how its memory is translated.
func (t tree) iommu(parent string) Item[string] {
	group, err := t.link(parent, "iommu_group")
	if err != nil {
		return unknown[string]("no group (%v): no IOMMU translates for the device", err)
	}
	kind, err := t.text("sys/kernel/iommu_groups", group, "type")
	if err != nil {
		kind = "of unknown type"
	}
	return known(fmt.Sprintf("group %s, %s", group, kind))
}

// roceDefaults are the settings of rdma_cm for a device, which an administrator makes readable by a
// folder in configfs (drivers/infiniband/core/cma_configfs.c).
func (t tree) roceDefaults(name string) (rows []TrafficRow) {
	at := "sys/kernel/config/rdma_cm/" + name + "/ports"
	ports := t.names(at)
	if len(ports) == 0 {
		return []TrafficRow{{Of: name, Setting: "default_roce_tos, default_roce_mode", Unknown: "nobody has made /sys/kernel/config/rdma_cm/" + name}}
	}
	for _, port := range ports {
		for _, setting := range [...]string{"default_roce_tos", "default_roce_mode"} {
			row := TrafficRow{Of: name + " port " + port, Setting: setting}
			var err error
			if row.Value, err = t.text(at, port, setting); err != nil {
				row.Unknown = err.Error()
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// network reads what the system's files say of a network device.
func (t tree) network(name string) NetPlace {
	at := "sys/class/net/" + name
	n := NetPlace{Name: name}
	n.State, _ = t.text(at, "operstate")
	n.MTU, _ = t.text(at, "mtu")
	n.Kind = t.netKind(at, name)
	var below []string
	for _, f := range t.names(at) {
		if lower, ok := strings.CutPrefix(f, "lower_"); ok {
			below = append(below, lower)
		}
	}
	if master, err := t.link(at, "master"); err == nil {
		below = append(below, "part of "+master)
	}
	n.Below = strings.Join(below, ", ")
	return n
}

// netKind is the kind of a network device. Its type is 32 for IP over InfiniBand (ARPHRD_INFINIBAND).
func (t tree) netKind(at, name string) string {
	const infiniBand = "32"
	if vlan, err := t.text("proc/net/vlan", name); err == nil {
		for line := range strings.Lines(vlan) {
			if f := strings.Fields(line); slices.Contains(f, "VID:") {
				return "vlan " + f[slices.Index(f, "VID:")+1]
			}
		}
	}
	if mode, err := t.text(at, "bonding/mode"); err == nil {
		kind, _, _ := strings.Cut(mode, " ")
		members, _ := t.text(at, "bonding/slaves")
		return fmt.Sprintf("bond %s of %d", kind, len(strings.Fields(members)))
	}
	uevent, _ := t.text(at, "uevent")
	for line := range strings.Lines(uevent) {
		if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return kind
		}
	}
	switch kind, _ := t.text(at, "type"); {
	case kind == infiniBand:
		return "ip over infiniband"
	case t.has(at, "device"):
		return "ethernet"
	}
	return "virtual"
}
