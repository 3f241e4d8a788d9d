//go:build linux && !portable

package udp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Holder describes the socket that has a local address, by the process that owns it, as far as this
// process may know: "" if there is no such socket. It reads the
// descriptors of every process in /proc: only for the text of an error.
func Holder(local netip.AddrPort) string {
	inode := inodeOf(local)
	if inode == "" {
		return ""
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // without permission a process shows none
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != "socket:["+inode+"]" {
			continue
		}
		proc := filepath.Dir(filepath.Dir(fd))
		name, _ := os.ReadFile(filepath.Join(proc, "comm"))
		return fmt.Sprintf("process %s (%s)", filepath.Base(proc), strings.TrimSpace(string(name)))
	}
	return "a process of another user, or the kernel"
}

// Columns of /proc/net/udp and udp6.
const (
	columnLocal = 1
	columnInode = 9
)

// inodeOf returns the inode number of the socket at local, or at its port of every address.
func inodeOf(local netip.AddrPort) string {
	for _, table := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			c := strings.Fields(lines.Text())
			if len(c) <= columnInode {
				continue
			}
			if at, ok := parseProcAddr(c[columnLocal]); ok && at.Port() == local.Port() &&
				(at.Addr() == local.Addr().Unmap() || at.Addr().IsUnspecified()) {
				return c[columnInode]
			}
		}
	}
	return ""
}

// parseProcAddr parses an address such as "0100007F:12B7": words of the host's order, in hexadecimal.
func parseProcAddr(s string) (netip.AddrPort, bool) {
	words, port, ok := strings.Cut(s, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || len(words)%8 != 0 {
		return netip.AddrPort{}, false
	}
	var b []byte
	for ; words != ""; words = words[8:] {
		w, err := strconv.ParseUint(words[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(w))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), ok
}
