package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// serveArg is the argument with which process 1 starts itself as the server.
const serveArg = "serve"

func main() {
	if slices.Contains(os.Args[1:], serveArg) {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "rxevm agent:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "rxevm agent: it is the first process of the test machine, and this is not one")
		os.Exit(1)
	}
	if err := first(); err != nil {
		fmt.Println(wire.SetupMark + err.Error())
	}
	powerOff()
}

// powerOff powers the machine off. It does not return.
func powerOff() {
	unix.Sync()
	for {
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
}

// first performs the work of process 1, and returns when the server has ended.
func first() error {
	for _, m := range []struct{ fs, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := mount(m.fs, m.at, m.fs, 0, ""); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(wire.SetupFile)
	if err != nil {
		return err
	}
	var s wire.Setup
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	for _, m := range s.Modules {
		if err := load(m); err != nil {
			return err
		}
	}
	if err := switchRoot(); err != nil {
		return err
	}
	if err := furnish(s); err != nil {
		return err
	}
	if err := os.Setenv("PATH", searchPath); err != nil {
		return err
	}
	if err := persistent(s); err != nil {
		return err
	}
	env, err := network(s)
	if err != nil {
		return err
	}
	text, err = json.Marshal(env)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", serveArg)
	cmd.Env = append(os.Environ(), environment+"="+string(text))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait4: %w", err)
		case pid == cmd.Process.Pid:
			if status.ExitStatus() != 0 {
				return fmt.Errorf("the server ended with %#x", uint32(status))
			}
			return nil
		}
	}
}

// compressed is MODULE_INIT_COMPRESSED_FILE of the kernel's linux/module.h: it
// unpacks the module itself.
const compressed = 4

// load loads a module of the initramfs.
func load(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if filepath.Ext(file) != ".ko" {
		flags = compressed
	}
	if err := unix.FinitModule(int(f.Fd()), "", flags); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("loading %s: %w", file, err)
	}
	return nil
}

func mount(what, at, fs string, flags uintptr, options string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(what, at, fs, flags, options); err != nil {
		return fmt.Errorf("mounting %s (%s) at %s: %w", what, fs, at, err)
	}
	return nil
}

// plan9 mounts a folder of the host. 512000 is the longest message of the virtio transport
// (net/9p/trans_virtio.c).
func plan9(tag, at string, flags uintptr, cache string) error {
	return mount(tag, at, "9p", flags, "trans=virtio,version=9p2000.L,msize=512000,cache="+cache)
}

// switchRoot makes the image the root: the lower layer is read-only and cached without limit,
// since it never changes; the upper layer is memory.
func switchRoot() error {
	if err := plan9("root", "/ro", unix.MS_RDONLY, "loose"); err != nil {
		return err
	}
	if err := mount("rw", "/rw", "tmpfs", 0, ""); err != nil {
		return err
	}
	for _, d := range []string{"/rw/upper", "/rw/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := mount("overlay", "/new", "overlay", 0, "lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work"); err != nil {
		return err
	}
	for _, m := range []string{"/proc", "/sys", "/dev"} {
		if err := os.MkdirAll("/new"+m, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m, "/new"+m, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", m, err)
		}
	}
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir("/")
}

// furnish mounts the usual system folders, and the host's folders, outer ones before inner ones.
func furnish(s wire.Setup) error {
	for _, m := range []struct{ fs, at, options string }{
		{"tmpfs", "/dev/shm", ""}, {"devpts", "/dev/pts", ""}, {"tmpfs", "/tmp", ""}, {"tmpfs", "/run", ""},
	} {
		if err := mount(m.fs, m.at, m.fs, 0, m.options); err != nil {
			return err
		}
	}
	// As systemd or udev does.
	for link, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(to, "/dev/"+link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	shares := slices.Clone(s.Shares)
	slices.SortFunc(shares, func(a, b wire.Share) int { return strings.Compare(a.Path, b.Path) })
	for _, sh := range shares {
		var flags uintptr
		if !sh.Writable {
			flags = unix.MS_RDONLY
		}
		// No cache: the host writes there too.
		if err := plan9(sh.Tag, sh.Path, flags, "none"); err != nil {
			return err
		}
	}
	unlimited := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unlimited); err != nil {
		return fmt.Errorf("no limit for locked memory: %w", err)
	}
	return unix.Sethostname([]byte("rxevm"))
}
