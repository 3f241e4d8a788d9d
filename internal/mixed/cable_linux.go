package mixed

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	space              = "mixed"
	deviceEnd, rnicEnd = "mixed0", "mixed1"
	cableMTU           = "4200" // carries 4096 bytes of payload and all headers
)

// Lay makes the name space, the cable and the device, unless an earlier test has. They stay until the
// machine ends: the kernel would wait for the context of the device that librdmacm keeps as long as
// its process lives. It needs root, and Soft-RoCE in the kernel.
func Lay() error {
	if _, err := net.InterfaceByName(deviceEnd); err == nil {
		return nil
	}
	for _, line := range []string{
		"ip netns add " + space,
		"ip link add " + deviceEnd + " mtu " + cableMTU + " type veth peer name " + rnicEnd + " mtu " + cableMTU + " netns " + space,
		"ip addr add " + DeviceAddr.String() + "/24 dev " + deviceEnd,
		"ip link set " + deviceEnd + " up",
		"ip -n " + space + " addr add " + SoftAddr.String() + "/24 dev " + rnicEnd,
		"ip -n " + space + " link set " + rnicEnd + " up",
		"rdma link add " + Device + " type rxe netdev " + deviceEnd,
	} {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}

// Within calls fn in the software RNIC's name space, to which the sockets that fn opens belong. It
// waits until fn returns.
func Within(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + space)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			_ = f.Close() // opened for reading
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}
