package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside is the environment variable with the name of the test that runs in the namespace.
const inside = "VERBENA_NETNS"

// Inside reports whether Enter has started this process, or the process that started it.
func Inside() bool { return os.Getenv(inside) != "" }

// Enter reports whether the calling test is in a namespace whose loopback device has the addresses, besides
// 127.0.0.0/8 and ::1. If not, it runs the test again in a process with such a namespace, reports the result
// and those of its subtests as this test's, and the test must return. It skips the test on a system that permits no namespaces. Not for
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
	cmd.SysProcAttr = isolated()
	out, err := cmd.CombinedOutput()
	repeat(t, string(out))
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

// The lines of "go test -v": a test whose output follows, a line that it logged, and the result of a subtest.
var (
	outputLine = regexp.MustCompile(`^=== (?:RUN|NAME|CONT) +(\S+)$`)
	logLine    = regexp.MustCompile(`^ +\S+\.go:\d+: (.*)$`)
	resultLine = regexp.MustCompile(`^ +--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// repeat has the calling test run a subtest for each that the output of another process reports, with the same
// result, and log what the test logged there.
func repeat(t *testing.T, out string) {
	logged, of := map[string]string{}, ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if m := outputLine.FindStringSubmatch(line); m != nil {
			of = m[1]
		} else if m := logLine.FindStringSubmatch(line); m != nil {
			logged[of] += m[1] + "\n"
		} else if m := resultLine.FindStringSubmatch(line); m != nil {
			text := strings.TrimRight(logged[m[2]], "\n")
			t.Run(strings.TrimPrefix(m[2], t.Name()+"/"), func(t *testing.T) {
				switch m[1] {
				case "SKIP":
					t.Skipf("%s", text)
				case "FAIL":
					t.Errorf("%s", text)
				}
			})
		}
	}
	if text := logged[t.Name()]; text != "" {
		t.Log(strings.TrimRight(text, "\n"))
	}
}

// Possible reports whether the system permits network namespaces. It starts a process and waits for it.
func Possible() bool {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.SysProcAttr = isolated()
	return cmd.Run() == nil
}

// isolated has a process start in user and network namespaces of its own, in which it is root.
func isolated() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
}

// configure starts the loopback device and gives it addresses, which can be used at once.
func configure(addrs []string) (err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	// struct ifinfomsg: family and padding, type, index, flags, the flags to change.
	up := binary.NativeEndian.AppendUint32(nil, 0)
	for _, v := range []uint32{loopbackIndex, unix.IFF_UP, unix.IFF_UP} {
		up = binary.NativeEndian.AppendUint32(up, v)
	}
	if err := request(fd, unix.RTM_NEWLINK, up); err != nil {
		return fmt.Errorf("netns: starting lo: %w", err)
	}
	for _, s := range addrs {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return err
		}
		// Without IFA_F_NODAD an address is tentative, and bind(2) refuses it, until a kernel worker has run.
		// struct ifaddrmsg: family, prefix length, flags, scope, index; then one attribute.
		add := []byte{unix.AF_INET6, byte(a.BitLen()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
		add = binary.NativeEndian.AppendUint32(add, loopbackIndex)
		add = binary.NativeEndian.AppendUint16(add, unix.SizeofRtAttr+16)
		add = binary.NativeEndian.AppendUint16(add, unix.IFA_LOCAL)
		addr := a.As16()
		if err := request(fd, unix.RTM_NEWADDR, append(add, addr[:]...)); err != nil {
			return fmt.Errorf("netns: address %s: %w", s, err)
		}
		if err := arrive(a); err != nil {
			return err
		}
	}
	return nil
}

// A kernel worker adds the route to a new address. It may wait for the end of other namespaces: datagrams to the
// address were unreachable for half a second. routeTime is how long to wait for it, and routeTry how long for one
// datagram.
const routeTime, routeTry = 20 * time.Second, 10 * time.Millisecond

// arrive waits until datagrams to an address arrive.
func arrive(a netip.Addr) (err error) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	b := make([]byte, 1)
	for end := time.Now().Add(routeTime); ; {
		_, refused := c.WriteTo(b, c.LocalAddr())
		if err := c.SetReadDeadline(time.Now().Add(routeTry)); err != nil {
			return fmt.Errorf("netns: %w", err)
		}
		_, err := c.Read(b) // without the route, a pause
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("netns: a datagram to %v: %w", a, errors.Join(refused, err))
		}
	}
}

// request sends a message to the kernel and waits for its answer.
//
// Implements: netlink(7), rtnetlink(7).
func request(fd int, kind uint16, body []byte) error {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	m = append(m, make([]byte, 8)...) // sequence number and port of the sender
	if err := unix.Sendto(fd, append(m, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	// The answer is a header and struct nlmsgerr, which begins with the negative errno.
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("an answer of %d bytes, type %d", n, binary.NativeEndian.Uint16(answer[4:]))
	}
	if e := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); e != 0 {
		return syscall.Errno(-e)
	}
	return nil
}

// loopbackIndex is the index of lo in a new namespace (kernel net/core/dev.c, LOOPBACK_IFINDEX).
const loopbackIndex = 1
