package rxevm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// The descriptors passed to QEMU, from the first after its standard ones.
const (
	fdLink = 3 + iota
	fdMonitor
	fdCable
)

// The accelerators.
const (
	emulation = "tcg"
	kvm       = "kvm"
)

// bootLine is the kernel command line, except for the clock: the log goes to the serial line from
// notices up, unthrottled for the agent's marks; a panic ends the machine (QEMU does not reboot).
// Emulated processors on a busy host stall for long, so a stall is reported after two minutes,
// the watchdog's maximum.
const bootLine = "console=ttyS0 loglevel=6 printk.devkmsg=on panic=-1 " +
	"watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120 net.ifnames=0 "

// arguments returns QEMU's arguments for a machine on plug of its cable.
func arguments(c *Config, img *Image, initrd, dir, accel string, plug int) []string {
	smp := strconv.Itoa(c.CPUs)
	if c.NUMANodes > 1 {
		// A socket for each node: the kernel warns about a cache shared by two.
		smp = fmt.Sprintf("%d,sockets=%d,cores=%d,threads=1", c.CPUs, c.NUMANodes, c.CPUs/c.NUMANodes)
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", accelArgument(accel), "-cpu", processor(accel), "-smp", smp,
		"-kernel", filepath.Join(img.Dir, kernelName), "-initrd", initrd, "-append", bootLine + clock(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=link,fd=%d", fdLink),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=link,name=" + wire.Port,
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", fdMonitor), "-mon", "chardev=monitor,mode=control",
	}
	folder := func(tag, path string, writable bool) {
		option := fmt.Sprintf("local,id=%s,path=%s,security_model=none,multidevs=remap", tag, strings.ReplaceAll(path, ",", ",,"))
		if !writable {
			option += ",readonly=on"
		}
		args = append(args, "-fsdev", option, "-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	folder("root", filepath.Join(img.Dir, rootName), false)
	for _, s := range shares(c, dir) {
		path := s.Path
		if path == wire.ShareDir {
			path = dir
		}
		folder(s.Tag, path, s.Writable)
	}
	if c.Cable != nil {
		args = append(args, "-netdev", fmt.Sprintf("socket,id=%s,fd=%d", nicName, fdCable),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s%02x,romfile=", nicName, nicMAC, plug))
	}
	if memory := strconv.Itoa(c.MemoryMB); c.NVDIMM == "" {
		args = append(args, "-m", memory)
	} else {
		// Shared: a store of the machine is a store to the file's page, which outlives QEMU.
		args = append(args, "-m", fmt.Sprintf("%s,slots=1,maxmem=%dM", memory, c.MemoryMB+c.nvdimmMB), "-machine", "nvdimm=on",
			"-object", fmt.Sprintf("memory-backend-file,id=nvdimm,share=on,mem-path=%s,size=%dM", strings.ReplaceAll(c.NVDIMM, ",", ",,"), c.nvdimmMB),
			"-device", "nvdimm,memdev=nvdimm")
	}
	if c.NUMANodes > 1 {
		per, cpus := c.MemoryMB/c.NUMANodes, c.CPUs/c.NUMANodes
		for n := range c.NUMANodes {
			// The last gets the remainder.
			mem := per
			if n == c.NUMANodes-1 {
				mem = c.MemoryMB - per*n
			}
			args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=mem%d,size=%dM", n, mem),
				"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=mem%d", n, n*cpus, n*cpus+cpus-1, n))
		}
	}
	return args
}

// accelArgument returns QEMU's argument for an accelerator.
func accelArgument(accel string) string {
	if accel == emulation {
		return emulation + ",thread=multi" // a thread for each processor
	}
	return accel
}

// processor returns the model of the machine's processors. Emulation executes "rep movsb" and "rep stosb"
// byte by byte. Without the flags that recommend them (erms, fsrm) the kernel clears and copies by words:
// the tests of runtime then take 182 s of processor instead of 199 (two machines beside each other).
func processor(accel string) string {
	if accel == emulation {
		return "max,erms=off,fsrm=off"
	}
	return "max"
}

// nicName is the virtual network card, for the monitor; nicMAC the first five bytes of its
// address, in QEMU's range: the last is the number of its plug.
const (
	nicName = "nic"
	nicMAC  = "52:54:00:76:62:"
)

// shares returns the machine's mounts: its own writable folder, and those of the configuration.
func shares(c *Config, dir string) []wire.Share {
	all := []wire.Share{{Tag: "own", Path: wire.ShareDir, Writable: true}}
	for i, s := range c.Shares {
		all = append(all, wire.Share{Tag: "s" + strconv.Itoa(i), Path: s.Path, Writable: s.Writable})
	}
	return all
}

// initramfs writes the machine's first root: the agent, the early modules, and the setup.
func initramfs(file string, img *Image, agent []byte, setup wire.Setup) error {
	load, err := img.modules()
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	c := cpio{out: f}
	for _, d := range []string{"proc", "sys", "ro", "rw", "new"} {
		c.dir(d)
	}
	c.char("dev/console", 5, 1) // for the first process, before devtmpfs
	c.file("init", agent)
	for _, m := range load {
		text, err := os.ReadFile(filepath.Join(img.Dir, rootName, m))
		if err != nil {
			return err
		}
		name := "modules/" + filepath.Base(m)
		c.file(name, text)
		setup.Modules = append(setup.Modules, "/"+name)
	}
	text, err := json.Marshal(setup)
	if err != nil {
		return err
	}
	c.file(strings.TrimPrefix(wire.SetupFile, "/"), text)
	if err := c.close(); err != nil {
		return err
	}
	return f.Close()
}

// qemu is the QEMU process.
type qemu struct {
	cmd  *exec.Cmd
	dead chan struct{} // closed when it has been waited for
	err  error         // its outcome; read after dead

	mu    sync.Mutex // guards words
	words bytes.Buffer
}

// maxWords is the retained size of QEMU's own messages.
const maxWords = 16 << 10

// Write keeps QEMU's messages for the error of a machine that did not boot.
func (q *qemu) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if room := maxWords - q.words.Len(); room > 0 {
		q.words.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}

// how describes the outcome of the process; read after dead.
func (q *qemu) how() string {
	if q.err == nil {
		return "exit status 0"
	}
	return q.err.Error()
}

func (q *qemu) said() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return strings.TrimSpace(q.words.String())
}

// startQEMU starts the process with the descriptors; the console gets its output until it is
// dead. QEMU is killed when the thread that started it ends: that thread does nothing else until
// QEMU is dead, so it ends earlier only with the whole process.
func startQEMU(args []string, fds []*os.File, c *console) (*qemu, error) {
	q := &qemu{dead: make(chan struct{})}
	q.cmd = exec.Command("qemu-system-x86_64", args...)
	q.cmd.ExtraFiles = fds
	q.cmd.Stderr = q
	// Its own group: a terminal's interrupt goes to this process, which ends it in order.
	q.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := q.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // forever: the thread ends with the goroutine
		defer close(q.dead)
		if err := q.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		c.read(out)
		q.err = q.cmd.Wait()
	}()
	if err := <-started; err != nil {
		<-q.dead
		return nil, err
	}
	return q, nil
}
