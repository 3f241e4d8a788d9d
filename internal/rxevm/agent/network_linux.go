package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// searchPath is the PATH of the machine.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// roceMTU fits 4096 bytes of payload and RoCEv2's headers into a frame. rxe takes its own MTU
// from the interface when the device is made (drivers/infiniband/sw/rxe/rxe.c, rxe_set_mtu), so
// it is set before.
const roceMTU = 4200

// cable is the batch for ip: two interfaces of one system with a cable between them. A packet to
// the other end's address would go through the loopback interface, because the address is local.
// The rules look up arriving packets in the local table first, and packets for the other end in a
// table that contains only the cable; the local table comes after them. Multicast leaves by the
// end whose address it has; by r0 if it has none yet.
//
// The neighbors are permanent entries. Resolving one here is instant: veth and ARP's answer are
// function calls, complete when the request has been sent. That is too early for
// rdma_resolve_addr, which sends the request, then adds itself to the list that the answer wakes
// (drivers/infiniband/core/addr.c: rdma_resolve_ip, addr_resolve before queue_req;
// netevent_callback), and so sleeps for its whole time limit, after which it checks once more and
// finds the neighbor.
const cable = `link set lo up
link add r0 type veth peer name r1
link set r0 mtu %[1]d address %[2]s
link set r1 mtu %[1]d address %[3]s
addr add 10.77.0.1/24 dev r0
addr add 10.77.0.2/24 dev r1
link set r0 up
link set r1 up
rule add pref 1 iif r0 lookup local
rule add pref 2 iif r1 lookup local
rule add pref 10 from 10.77.0.1 to 10.77.0.2 lookup 101
rule add pref 11 from 10.77.0.2 to 10.77.0.1 lookup 102
rule del pref 0
rule add pref 100 lookup local
route add 10.77.0.2 dev r0 src 10.77.0.1 table 101
route add 10.77.0.1 dev r1 src 10.77.0.2 table 102
rule add pref 12 from 10.77.0.1 to 224.0.0.0/4 lookup 101
rule add pref 13 from 10.77.0.2 to 224.0.0.0/4 lookup 102
route add 224.0.0.0/4 dev r0 src 10.77.0.1 table 101
route add 224.0.0.0/4 dev r1 src 10.77.0.2 table 102
route add 224.0.0.0/4 dev r0 src 10.77.0.1
neigh add 10.77.0.2 lladdr %[3]s nud permanent dev r0
neigh add 10.77.0.1 lladdr %[2]s nud permanent dev r1
`

// macR0 and macR1 are the addresses of the cable's ends: locally administered, and different from
// those that QEMU uses on the cable between machines.
const (
	macR0 = "02:76:62:00:00:01"
	macR1 = "02:76:62:00:00:02"
)

// persistent loads the drivers of persistent memory: of the NVDIMM (nfit), of its two uses as a device
// of blocks and of bytes. A namespace that was made devdax before is /dev/dax0.0 when it returns.
func persistent(s wire.Setup) error {
	if !s.NVDIMM {
		return nil
	}
	return run("", "modprobe", "-a", "nfit", "nd_pmem", "dax_pmem", "device_dax")
}

// network makes the RDMA devices and returns the variables for the commands' environment.
func network(s wire.Setup) (map[string]string, error) {
	modules := []string{"veth", "ib_uverbs", "rdma_ucm", "rdma_rxe"}
	if s.CableIP != "" {
		modules = append(modules, "virtio_net")
	}
	if err := run("", "modprobe", append([]string{"-a"}, modules...)...); err != nil {
		return nil, err
	}
	set := map[string]string{
		// Addresses are used at once: they are unique.
		"net/ipv6/conf/default/accept_dad": "0",
		// Packets from a local address are the purpose of the cable.
		"net/ipv4/conf/all/accept_local":     "1",
		"net/ipv4/conf/default/accept_local": "1",
		"net/ipv4/conf/all/rp_filter":        "0",
		"net/ipv4/conf/default/rp_filter":    "0",
		// A task that is blocked for longer than any test waits is a fault.
		"kernel/hung_task_timeout_secs": "60",
		"kernel/sysrq":                  "1",
	}
	for name, value := range set {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	batch := fmt.Sprintf(cable, roceMTU, macR0, macR1)
	links := "link add rxe0 type rxe netdev r0\nlink add rxe1 type rxe netdev r1\n"
	if s.CableIP != "" {
		nic, err := virtioNIC()
		if err != nil {
			return nil, err
		}
		batch += fmt.Sprintf("link set %s name %s\nlink set %[2]s mtu %d\naddr add %s dev %[2]s\nlink set %[2]s up\n",
			nic, wire.CableNIC, roceMTU, s.CableIP)
		links += fmt.Sprintf("link add %s type rxe netdev %s\n", wire.CableDevice, wire.CableNIC)
	}
	if err := run(batch, "ip", "-batch", "-"); err != nil {
		return nil, err
	}
	if err := run(links, "rdma", "-b", "/dev/stdin"); err != nil {
		return nil, err
	}
	devices := map[string]netip.Addr{"rxe0": netip.AddrFrom4([4]byte{10, 77, 0, 1}), "rxe1": netip.AddrFrom4([4]byte{10, 77, 0, 2})}
	if s.CableIP != "" {
		at, err := netip.ParsePrefix(s.CableIP)
		if err != nil {
			return nil, err
		}
		devices[wire.CableDevice] = at.Addr()
	}
	for name, addr := range devices {
		if err := ready(name, addr); err != nil {
			return nil, err
		}
	}
	return map[string]string{
		"PATH": searchPath, "HOME": "/root", "LANG": "C.UTF-8",
		"VERBENA_TEST_DEVICES": "rxe0,rxe1",
	}, nil
}

// virtioNIC returns the interface of the virtual network card.
func virtioNIC() (string, error) {
	found, err := filepath.Glob("/sys/class/net/*/device/driver")
	if err != nil {
		return "", err
	}
	for _, link := range found {
		if to, err := os.Readlink(link); err == nil && filepath.Base(to) == "virtio_net" {
			return strings.Split(link, "/")[4], nil
		}
	}
	return "", errors.New("no virtio network card here")
}

// run runs a program of the image and waits for it.
func run(in, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
