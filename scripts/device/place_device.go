package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
)

// place reads where the program runs, and the two devices.
func (b *bench) place(ctx context.Context) Place {
	p := Place{Machine: b.sys.machine(), System: b.sys.system(), Process: b.sys.process(), Modules: b.sys.modules(), NetNS: b.sys.netNS()}
	ends := b.ends[:]
	if ends[0] == ends[1] {
		ends = ends[:1]
	}
	for _, t := range ends {
		d := b.sys.device(t.device)
		if t.provider.Name() != "ibv" {
			d = DevicePlace{Name: t.device, Function: known("software, of this process")}
			explainAll(&d, "the device is software")
		}
		b.ask(ctx, t, &d)
		p.Devices = append(p.Devices, d)
	}
	p.Process.Fork = b.fork()
	p.Programs = Versions{Go: goruntime.Version(), Libraries: b.sys.libraries(), Verbena: b.version()}
	return p
}

// version is the revision of the repository.
func (b *bench) version() Item[string] {
	if b.revision != "" {
		return known(b.revision)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return known(s.Value)
			}
		}
	}
	return unknown[string]("neither the flag -revision nor the build has it")
}

// fork is the fork status of the first library of ibv.
func (b *bench) fork() Item[string] {
	for _, t := range b.ends {
		if p, ok := t.provider.(*ibv.Provider); ok {
			s, err := p.ForkStatus()
			return item(s.String(), err)
		}
	}
	return unknown[string]("no device of libibverbs")
}

// ask fills in what the device's library reports.
func (b *bench) ask(ctx context.Context, t target, d *DevicePlace) {
	d.NUMANode = -1
	dev, shut, err := b.open(t)
	if err != nil {
		d.Ports, d.GIDs, d.NetDevs, d.Vendor = unknown[[]PortPlace]("%v", err), unknown[[]GIDPlace]("%v", err), unknown[[]NetPlace]("%v", err), unknown[string]("%v", err)
		return
	}
	info := dev.Device()
	d.NUMANode = info.Node
	d.VectorCPUs = unknown[string]("no interrupt is named after the device")
	if info.VectorCPUs != nil {
		d.VectorCPUs = known(strings.ReplaceAll(fmt.Sprint(info.VectorCPUs), "] [", "], ["))
	}
	attr, err := dev.QueryDevice()
	if err != nil {
		d.Ports, d.Vendor = unknown[[]PortPlace]("%v", err), unknown[string]("%v", err)
	} else {
		d.Vendor = known(fmt.Sprintf("%#04x, part %d", attr.VendorID, attr.VendorPartID))
		if attr.FWVersion != "" {
			d.Firmware = known(attr.FWVersion)
		}
		d.Ports = b.ports(dev, attr, t.device)
		d.GIDs = gids(ctx, dev, attr, b.mask)
	}
	d.NetDevs = b.netDevs(d.GIDs)
	if d.Traffic.Value != nil && d.NetDevs.Value != nil {
		for _, n := range *d.NetDevs.Value {
			*d.Traffic.Value = append(*d.Traffic.Value, b.sys.flowControl(ctx, n.Name))
		}
	}
	if err := shut(); err != nil {
		d.Ports = unknown[[]PortPlace]("closing the device: %v", err)
	}
}

// ports reads the ports of a device.
func (b *bench) ports(dev verbs.Context, attr verbs.DeviceAttr, name string) Item[[]PortPlace] {
	rows := []PortPlace{}
	for port := 1; port <= attr.PhysPorts; port++ {
		p, err := dev.QueryPort(uint8(port))
		if err != nil {
			return unknown[[]PortPlace]("port %d: %v", port, err)
		}
		rate, err := b.sys.text("sys/class/infiniband", name, "ports", fmt.Sprint(port), "rate")
		if err != nil {
			rate = ""
		}
		row := PortPlace{Port: port, State: p.State.String(), Rate: rate, MaxMTU: p.MaxMTU.Bytes(), ActiveMTU: p.ActiveMTU.Bytes(),
			MaxMessage: p.MaxMsgSize, GIDs: p.GIDTblLen, PKeys: p.PKeyTblLen, LID: "none"}
		row.LinkLayer = [...]string{"unspecified", "InfiniBand", "Ethernet"}[min(p.LinkLayer, verbs.LinkEthernet)]
		if p.LID != 0 {
			row.LID = "assigned"
		}
		rows = append(rows, row)
	}
	return known(rows)
}

// gids reads the address tables of all ports.
func gids(ctx context.Context, dev verbs.Context, attr verbs.DeviceAttr, m *masker) Item[[]GIDPlace] {
	rows := []GIDPlace{}
	for port := uint8(1); int(port) <= attr.PhysPorts; port++ {
		p, err := dev.QueryPort(port)
		if err != nil {
			return unknown[[]GIDPlace]("port %d: %v", port, err)
		}
		chosen, chosenErr := verbs.ChooseGID(dev, port)
		for i := range p.GIDTblLen {
			if ctx.Err() != nil {
				return unknown[[]GIDPlace]("%v", errCut)
			}
			e, err := dev.QueryGIDEntry(port, i)
			if errors.Is(err, verbs.ErrNotSupported) {
				e = verbs.GIDEntry{Type: 1 << 8}
				e.GID, err = dev.QueryGID(port, i)
			}
			if err != nil || e.GID == (verbs.GID{}) {
				continue // an empty entry
			}
			row := GIDPlace{Port: int(port), Index: i, Type: e.Type.String(), NetDev: "none", Address: m.addr(e.GID.Addr()), Chosen: "-"}
			if e.NetDev != 0 {
				row.NetDev = "not in this name space"
				if n, err := net.InterfaceByIndex(int(e.NetDev)); err == nil {
					row.NetDev = n.Name
				}
			}
			if chosenErr == nil && chosen.Index == i {
				row.Chosen = "yes"
			}
			rows = append(rows, row)
		}
	}
	return known(rows)
}

// netDevs are the network devices of the address table.
func (b *bench) netDevs(gids Item[[]GIDPlace]) Item[[]NetPlace] {
	if gids.Value == nil {
		return unknown[[]NetPlace]("%s", gids.Unknown)
	}
	rows := []NetPlace{}
	for _, g := range *gids.Value {
		there := slices.ContainsFunc(rows, func(n NetPlace) bool { return n.Name == g.NetDev })
		if !there && b.sys.has("sys/class/net", g.NetDev) {
			rows = append(rows, b.sys.network(g.NetDev))
		}
	}
	return known(rows)
}

// toolTime bounds a program of the system.
const toolTime = 5 * time.Second

// flowControl is the priority flow control of a network device. The kernel reports it by netlink only (DCB),
// so the program dcb is asked; drivers outside the kernel have a file.
func (t tree) flowControl(ctx context.Context, name string) TrafficRow {
	row := TrafficRow{Of: name, Setting: "priority flow control"}
	if v, err := t.text("sys/class/net", name, "qos/pfc"); err == nil {
		row.Value = v
		return row
	}
	program, err := exec.LookPath("dcb")
	if err != nil {
		row.Unknown = "the program dcb is not installed"
		return row
	}
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "pfc", "show", "dev", name).CombinedOutput()
	said := strings.Join(strings.Fields(string(out)), " ")
	if err != nil {
		row.Unknown = cmp.Or(said, err.Error())
		return row
	}
	row.Value = said
	return row
}
