package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/internal/sys"
)

// machine reads what the system's files say of the machine.
func (t tree) machine() Machine {
	m := Machine{Processors: runtime.NumCPU(), Processor: t.cpuField("model name"), Product: t.product()}
	if flags := t.cpuField("flags"); flags.Value != nil {
		m.Hypervisor = known("none")
		if slices.Contains(strings.Fields(*flags.Value), "hypervisor") {
			kind, err := t.text("sys/hypervisor/type")
			m.Hypervisor = known("yes")
			if err == nil {
				m.Hypervisor = known(kind)
			}
		}
	}
	if kb, err := t.meminfo("MemTotal"); err != nil {
		m.Memory = unknown[int64]("%v", err)
	} else {
		m.Memory = known(kb << 10)
	}
	nodes, err := sys.Nodes()
	m.NUMANodes = item(len(nodes), err)
	return m
}

// product is the machine's maker and model, not its serial number.
func (t tree) product() Item[string] {
	vendor, err := t.text("sys/class/dmi/id/sys_vendor")
	name, err2 := t.text("sys/class/dmi/id/product_name")
	if err != nil || err2 != nil {
		if model, err := t.text("sys/firmware/devicetree/base/model"); err == nil {
			return known(strings.TrimRight(model, "\x00"))
		}
		return unknown[string]("%v", cmp.Or(err, err2))
	}
	return known(vendor + " " + name)
}

// cpuField is a field of the first processor.
func (t tree) cpuField(name string) Item[string] {
	text, err := t.text("proc/cpuinfo")
	if err != nil {
		return unknown[string]("%v", err)
	}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return known(strings.TrimSpace(value))
		}
	}
	return unknown[string]("/proc/cpuinfo has no %q", name)
}

// meminfo is a field of /proc/meminfo, in its unit.
func (t tree) meminfo(name string) (int64, error) { return t.field("proc/meminfo", name) }

// field is the number of a line "name: number kB".
func (t tree) field(file, name string) (int64, error) {
	text, err := t.text(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == name+":" {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("/%s has no %q", file, name)
}

// system reads what the system's files say of the operating system.
func (t tree) system() System {
	s := System{Kernel: t.read("proc/sys/kernel/osrelease"), Arch: runtime.GOARCH, PageSize: os.Getpagesize(),
		Transparent: t.chosen("sys/kernel/mm/transparent_hugepage/enabled"), Container: t.container()}
	s.OS = unknown[string]("/etc/os-release has no PRETTY_NAME")
	if text, err := t.text("etc/os-release"); err != nil {
		s.OS = unknown[string]("%v", err)
	} else {
		for line := range strings.Lines(text) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				s.OS = known(strings.Trim(name, `"`))
			}
		}
	}
	size, err := t.meminfo("Hugepagesize")
	n, err2 := t.meminfo("HugePages_Total")
	s.HugePages = item(fmt.Sprintf("%d of %d kB", n, size), cmp.Or(err, err2))
	return s
}

// chosen is the word in brackets of a setting.
func (t tree) chosen(file string) Item[string] {
	text, err := t.text(file)
	if err != nil {
		return unknown[string]("%v", err)
	}
	if _, after, ok := strings.Cut(text, "["); ok {
		text, _, _ = strings.Cut(after, "]")
	}
	return known(text)
}

// container tells which kind of container the process runs in, if it can be seen.
func (t tree) container() Item[string] {
	switch {
	case t.has(".dockerenv"):
		return known("docker")
	case t.has("run/.containerenv"):
		return known("podman")
	case t.has("var/run/secrets/kubernetes.io"):
		return known("kubernetes")
	}
	return known("none that can be seen")
}

// capIPCLock is the bit of CAP_IPC_LOCK: such a process may lock memory without a limit.
const capIPCLock = 14

// process reads the limits of this process.
func (t tree) process() Process {
	p := Process{Memlock: t.limit("Max locked memory"), OpenFiles: t.limit("Max open files"), CgroupRDMA: t.cgroup()}
	p.IPCLock = unknown[bool]("/proc/self/status has no CapEff")
	if text, err := t.text("proc/self/status"); err == nil {
		for line := range strings.Lines(text) {
			if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
				bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
				p.IPCLock = item(bits>>capIPCLock&1 == 1, err)
			}
		}
	}
	for _, v := range [...]string{"RDMAV_FORK_SAFE", "IBV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE", "MLX5_SINGLE_THREADED", "MLX5_SHUT_UP_BF",
		"MLX5_POST_SEND_PREFER_BF", "MLX5_SCATTER_TO_CQE", "MLX5_CQE_SIZE", "HFI_UNIT"} {
		if value, ok := os.LookupEnv(v); ok {
			p.Variables = append(p.Variables, v+"="+value)
		}
	}
	return p
}

// limit is the soft and the hard value of a limit of this process.
func (t tree) limit(name string) Item[string] {
	text, err := t.text("proc/self/limits")
	if err != nil {
		return unknown[string]("%v", err)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if f := strings.Fields(rest); len(f) >= 2 {
				return known(f[0] + ", at most " + f[1])
			}
		}
	}
	return unknown[string]("/proc/self/limits has no %q", name)
}

// cgroup returns the limits and the usage of the rdma controller of the process's group, without the
// group's name.
func (t tree) cgroup() Item[string] {
	text, err := t.text("proc/self/cgroup")
	if err != nil {
		return unknown[string]("%v", err)
	}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "" && f[1] != "rdma" {
			continue
		}
		at := "sys/fs/cgroup"
		if f[1] == "rdma" {
			at += "/rdma"
		}
		limit, err := os.ReadFile(t.path(at, f[2], "rdma.max"))
		if err != nil {
			continue
		}
		used, _ := os.ReadFile(t.path(at, f[2], "rdma.current"))
		return known(fmt.Sprintf("limit %s; used %s", lines(limit), lines(used)))
	}
	return unknown[string]("no rdma controller in the groups of this process")
}

// lines joins the lines of a file.
func lines(b []byte) string {
	return cmp.Or(strings.Join(strings.Split(strings.TrimSpace(string(b)), "\n"), ", "), "nothing")
}

// modules are the loaded modules of RDMA, with their versions where they have some.
func (t tree) modules() Item[string] {
	var found []string
	for _, m := range [...]string{"ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm", "ib_ipoib", "ib_umad", "mlx4_ib", "mlx5_ib", "irdma", "i40iw", "bnxt_re",
		"efa", "erdma", "iw_cxgb4", "hns_roce_hw_v2", "mana_ib", "qedr", "ionic_rdma", "vmw_pvrdma", "ocrdma", "hfi1", "siw", "rdma_rxe", "nvidia_peermem"} {
		if !t.has("sys/module", m) {
			continue
		}
		if v, err := t.text("sys/module", m, "version"); err == nil {
			m += " " + v
		}
		found = append(found, m)
	}
	if len(found) == 0 {
		return unknown[string]("/sys/module has none of the modules we know")
	}
	return known(strings.Join(found, ", "))
}

// netNS reports whether all network name spaces share the RDMA devices (drivers/infiniband/core/device.c,
// the parameter netns_mode).
func (t tree) netNS() Item[string] {
	mode, err := t.text("sys/module/ib_core/parameters/netns_mode")
	switch {
	case err != nil:
		return unknown[string]("%v", err)
	case mode == "Y":
		return known("shared")
	}
	return known("exclusive")
}

// libraries are the files of RDMA's libraries that the process has loaded: their names have their versions.
func (t tree) libraries() Item[[]string] {
	f, err := os.Open(t.path("proc/self/maps"))
	if err != nil {
		return unknown[[]string]("%v", err)
	}
	defer f.Close()
	var found []string
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		name := filepath.Base(fields[len(fields)-1])
		verbs := strings.HasPrefix(name, "libibverbs") || strings.HasPrefix(name, "librdmacm") || strings.Contains(name, "-rdmav") ||
			strings.HasPrefix(name, "libmlx") || strings.HasPrefix(name, "libefa") || strings.HasPrefix(name, "libhns") || strings.HasPrefix(name, "libmana")
		if verbs && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return unknown[[]string]("no library of RDMA is loaded")
	}
	slices.Sort(found)
	return known(found)
}
