package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// fake is a tree of the system's files.
type fake struct {
	t *testing.T
	tree
}

func newFake(t *testing.T) fake {
	return fake{t, tree(must.Get(filepath.EvalSymlinks(t.TempDir()))(t))}
}

func (f fake) file(name, text string) {
	f.t.Helper()
	must.Do(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o755))
	must.Do(f.t, os.WriteFile(f.path(name), []byte(text), 0o644))
}

func (f fake) linkTo(name, to string) {
	f.t.Helper()
	must.Do(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o755))
	must.Do(f.t, os.MkdirAll(f.path(to), 0o755))
	must.Do(f.t, os.Symlink(f.path(to), f.path(name)))
}

// Rule: physical functions, virtual functions and subfunctions are told apart.
func TestFunctionOfADevice(t *testing.T) {
	f := newFake(t)
	const pf, vf, sf, guest = "sys/devices/pci0/0000:08:00.0", "sys/devices/pci0/0000:08:00.2", "sys/devices/pci0/0000:08:00.0/mlx5_core.sf.4", "sys/devices/pci0/0000:00:05.0"
	f.file(pf+"/sriov_totalvfs", "8\n")
	f.linkTo(pf+"/virtfn0", vf)
	f.linkTo(vf+"/physfn", pf)
	f.linkTo(pf+"/iommu_group", "sys/kernel/iommu_groups/15")
	f.file("sys/kernel/iommu_groups/15/type", "DMA-FQ\n")
	for bus, devices := range map[string][]string{"pci": {pf, vf, guest}, "auxiliary": {sf}} {
		for _, d := range devices {
			must.Do(t, os.MkdirAll(f.path(d), 0o755))
			f.linkTo(d+"/subsystem", "sys/bus/"+bus)
		}
	}
	for name, parent := range map[string]string{"pf": pf, "vf": vf, "sf": sf, "guest": guest} {
		f.linkTo("sys/class/infiniband/"+name+"/device", parent)
	}
	f.file("sys/class/infiniband/software/node_type", "1: CA\n")
	for name, want := range map[string]string{"pf": "PF", "vf": "VF", "sf": "SF", "guest": "PCI function without SR-IOV", "software": "software"} {
		d := f.device(name)
		if d.Function.Value == nil || !strings.HasPrefix(*d.Function.Value, want) {
			t.Errorf("the function of %s is %+v, want %s", name, d.Function, want)
		}
		if name == "software" && (d.Driver.Value == nil || !strings.HasPrefix(*d.Driver.Value, "rdma_rxe")) {
			t.Errorf("the driver of a software device is %+v", d.Driver)
		}
		if name == "pf" && (d.VFs.Value == nil || *d.VFs.Value != 1 || d.IOMMU.Value == nil || *d.IOMMU.Value != "group 15, DMA-FQ") {
			t.Errorf("the physical function has %+v virtual functions and IOMMU %+v", d.VFs, d.IOMMU)
		}
	}
}

// Rule: VLANs, bonds and IP over InfiniBand are told apart.
func TestKindOfANetworkDevice(t *testing.T) {
	f := newFake(t)
	f.file("sys/class/net/eth0/mtu", "9000\n")
	f.file("sys/class/net/eth0/operstate", "up\n")
	f.file("sys/class/net/eth0/device/x", "")
	f.linkTo("sys/class/net/eth0/master", "sys/class/net/bond0")
	f.file("sys/class/net/bond0/bonding/mode", "802.3ad 4\n")
	f.file("sys/class/net/bond0/bonding/slaves", "eth0 eth1\n")
	f.file("sys/class/net/bond0/lower_eth0/x", "")
	f.file("sys/class/net/eth0.5/mtu", "1500\n")
	f.file("proc/net/vlan/eth0.5", "eth0.5  VID: 5\t REORDER_HDR: 1\n")
	f.file("sys/class/net/ib0/type", "32\n")
	for name, want := range map[string]NetPlace{
		"eth0": {Name: "eth0", Kind: "ethernet", MTU: "9000", State: "up", Below: "part of bond0"}, "bond0": {Name: "bond0", Kind: "bond 802.3ad of 2", Below: "eth0"},
		"eth0.5": {Name: "eth0.5", Kind: "vlan 5", MTU: "1500"}, "ib0": {Name: "ib0", Kind: "ip over infiniband"},
	} {
		if got := f.network(name); got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}

// Rule: the limits of the process are read without the names of its groups.
func TestLimitsOfAProcess(t *testing.T) {
	f := newFake(t)
	f.file("proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         65536                unlimited            bytes\n")
	f.file("proc/self/status", "CapEff:\t0000000000004000\nVmPin:\t  12 kB\nVmLck:\t   4 kB\nVmRSS:\t 100 kB\n")
	f.file("proc/self/cgroup", "0::/user.slice/secret\n")
	f.file("sys/fs/cgroup/user.slice/secret/rdma.max", "mlx5_0 hca_handle=2 hca_object=2000\n")
	f.file("sys/fs/cgroup/user.slice/secret/rdma.current", "mlx5_0 hca_handle=1 hca_object=20\n")
	p := f.process()
	if p.Memlock.Value == nil || *p.Memlock.Value != "65536, at most unlimited" || p.IPCLock.Value == nil || !*p.IPCLock.Value {
		t.Errorf("memlock is %+v and CAP_IPC_LOCK %+v", p.Memlock, p.IPCLock)
	}
	if want := "limit mlx5_0 hca_handle=2 hca_object=2000; used mlx5_0 hca_handle=1 hca_object=20"; p.CgroupRDMA.Value == nil || *p.CgroupRDMA.Value != want {
		t.Errorf("the group's limits are %+v, want %q", p.CgroupRDMA, want)
	}
	if m, err := f.memoryUse(); err != nil || m != (memoryUse{12 << 10, 4 << 10, 100 << 10}) {
		t.Errorf("the memory is %+v, %v", m, err)
	}
}

// Rule: counters that have moved are reported with their values before and the difference.
func TestCountersOfADevice(t *testing.T) {
	f := newFake(t)
	ends := [2]target{{soft.Default(), "d"}, {soft.Default(), "d"}}
	at := "sys/class/infiniband/d/ports/1/"
	f.file(at+"hw_counters/retries", "3\n")
	f.file(at+"hw_counters/lifespan", "10\n")
	f.file(at+"counters/port_xmit_data", "0\n")
	before := f.counters(ends)
	f.file(at+"hw_counters/retries", "10\n")
	got := f.counted(ends, before)
	want := Counter{Device: "d", Name: "ports/1/hw_counters/retries", Before: 3, During: 7}
	if got.Value == nil || len(*got.Value) != 1 || (*got.Value)[0] != want {
		t.Errorf("the counters are %+v, want %+v alone", got, want)
	}
}

// Rule: of a conformance run the cases that failed come first, then known deviations with their reasons.
func TestDeviationsOfARun(t *testing.T) {
	f := newFake(t)
	f.file("one.json", `{"pair":"mlx5_0_one_device","mtu":4096,"results":[{"name":"b","verdict":"not applicable","reason":"known deviation: mlx5 checks no state"}]}`)
	f.file("mlx5.json", `{"pair":"mlx5_0_mlx5_1","mtu":4096,"results":[
		{"name":"a","verdict":"passed"},{"name":"b","verdict":"not applicable","reason":"known deviation: mlx5 checks no state"},
		{"name":"c","verdict":"not applicable","reason":"no XRC"},{"name":"d","verdict":"failed","reason":"accepted"}]}`)
	d := deviations(string(f.tree))
	if d.Runs.Value == nil || (*d.Runs.Value)[0] != (Run{Pair: "mlx5_0_mlx5_1", MTU: 4096, Passed: 1, Failed: 1, Known: 1, Skipped: 1}) {
		t.Errorf("the runs are %+v", d.Runs)
	}
	if c := d.Cases.Value; c == nil || len(*c) != 2 || (*c)[0].State != "new" || (*c)[1].Reason != "mlx5 checks no state" || len((*c)[1].Pairs) != 2 {
		t.Errorf("the cases are %+v", d.Cases)
	}
	if d := deviations(""); d.Runs.Unknown == "" {
		t.Error("without a run there is no reason why the deviations are unknown")
	}
}
