package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The wait for the devices: the kernel enters a device's addresses from a
// workqueue (drivers/infiniband/core/roce_gid_mgmt.c), after "rdma link add" has
// returned.
const (
	readyTime = 30 * time.Second
	readyLook = 10 * time.Millisecond
)

// ready blocks until the device's port is active and has the GID of the address, so that the
// first command can use it.
func ready(device string, addr netip.Addr) error {
	port := filepath.Join("/sys/class/infiniband", device, "ports/1")
	limit := time.Now().Add(readyTime)
	for {
		state, err := os.ReadFile(filepath.Join(port, "state"))
		if err != nil {
			return err
		}
		active, known := strings.Contains(string(state), "ACTIVE"), hasGID(port, addr)
		switch {
		case active && known:
			return nil
		case time.Now().After(limit):
			return fmt.Errorf("%s is not ready after %v: active %t, GID of %v %t", device, readyTime, active, addr, known)
		}
		time.Sleep(readyLook) // sysfs does not announce a new GID
	}
}

// hasGID reports whether the port's table has the address, mapped to a GID (RFC 4291, 2.5.5.2).
// An empty entry cannot be read.
func hasGID(port string, addr netip.Addr) bool {
	entries, err := filepath.Glob(filepath.Join(port, "gids/*"))
	if err != nil {
		return false
	}
	for _, e := range entries {
		text, err := os.ReadFile(e)
		if err != nil {
			continue
		}
		if gid, err := netip.ParseAddr(strings.TrimSpace(string(text))); err == nil && gid.Unmap() == addr {
			return true
		}
	}
	return false
}
