package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inside is the environment variable with the name of the test that runs in the namespace.
const inside = "VERBENA_NETNS"

// Enter reports whether the calling test is in a namespace whose loopback device has the addresses, besides
// 127.0.0.0/8 and ::1. If not, it runs the test again in a process with such a namespace, reports the result
// as this test's, and the test must return. It skips the test on a system that permits no namespaces. Not for
// subtests; it waits for the process.
//
// Implements: unshare(2), CLONE_NEWUSER and CLONE_NEWNET.
func Enter(t *testing.T, addrs ...string) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		if err := configure(addrs); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		t.Errorf("in a namespace: %v\n%s", err, out)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EINVAL):
		t.Skipf("this system permits no network namespaces: %v", err)
	default:
		t.Error(err)
	}
	return false
}

// configure starts the loopback device and gives it addresses.
func configure(addrs []string) (err error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("netns: starting lo: %w", err)
	}
	for _, s := range addrs {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return err
		}
		// Implements: struct in6_ifreq (linux/ipv6.h).
		req := struct {
			addr    [16]byte
			prefix  uint32
			ifindex int32
		}{a.As16(), uint32(a.BitLen()), loopbackIndex}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&req))); errno != 0 {
			return fmt.Errorf("netns: address %s: %w", s, errno)
		}
	}
	return nil
}

// loopbackIndex is the index of lo in a new namespace (kernel net/core/dev.c, LOOPBACK_IFINDEX).
const loopbackIndex = 1
