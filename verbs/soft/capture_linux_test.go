//go:build linux && !portable

package soft_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys/netns"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/roce/icrctest"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Lengths of headers in bytes, and positions of their fields.
const (
	vnetLen, vnetGSOType, vnetGSOSize = 10, 1, 4 // struct virtio_net_hdr
	etherLen                          = 14
	ipv4Len, ipv4Total, ipv4ID        = 20, 2, 4
	ipv6Len, ipv6Payload              = 40, 4
	udpLen, udpDestination, udpTotal  = 8, 2, 4
)

// gsoUDP marks a frame of joined datagrams (VIRTIO_NET_HDR_GSO_UDP_L4).
const gsoUDP = 5

// keptOfOpcode is how many packets of each opcode a capture keeps.
const keptOfOpcode = 200

// capture records what crosses the loopback device of the network namespace: the first IP packets of each opcode.
type capture struct {
	file *os.File
	done chan error // gets the error of the recording goroutine
	kept map[wire.Opcode][][]byte
}

// startCapture begins a capture. It needs CAP_NET_RAW in the namespace.
func startCapture(t *testing.T) *capture {
	t.Helper()
	be := func(v uint16) int { return int(v>>8 | v<<8) } // the system wants network order
	fd := must.Get(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, be(unix.ETH_P_ALL)))(t)
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
	must.Do(t, unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)) // each would come twice
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)            // what does not fit is not recorded
	c := &capture{os.NewFile(uintptr(fd), "capture"), make(chan error, 1), map[wire.Opcode][][]byte{}}
	go func() { c.done <- c.record() }()
	return c
}

// record keeps packets until the socket is closed.
func (c *capture) record() error {
	b := make([]byte, vnetLen+etherLen+1<<16)
	for {
		n, err := c.file.Read(b)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if n < vnetLen+etherLen+ipv4Len {
			continue
		}
		each := 0
		if b[vnetGSOType] == gsoUDP {
			each = int(binary.NativeEndian.Uint16(b[vnetGSOSize:]))
		}
		c.keep(b[vnetLen+etherLen:n], each)
	}
}

// keep keeps the datagrams of an IP packet, which are joined if each is not 0.
func (c *capture) keep(ip []byte, each int) {
	at := headersLen(ip)
	if at == 0 || len(ip) < at+wire.BTHLen+roce.ICRCLen {
		return
	}
	if each == 0 {
		each = len(ip) - at
	}
	for i, payload := range slices.Collect(slices.Chunk(ip[at:], each)) {
		op := wire.Opcode(payload[0])
		if len(c.kept[op]) == keptOfOpcode {
			continue
		}
		p := slices.Concat(ip[:at], payload)
		be, udp := binary.BigEndian, p[at-udpLen:]
		be.PutUint16(udp[udpTotal:], uint16(udpLen+len(payload)))
		if p[0]>>4 == 4 {
			be.PutUint16(p[ipv4Total:], uint16(len(p)))
			be.PutUint16(p[ipv4ID:], be.Uint16(p[ipv4ID:])+uint16(i))
		} else {
			be.PutUint16(p[ipv6Payload:], uint16(len(p)-ipv6Len))
		}
		c.kept[op] = append(c.kept[op], p)
	}
}

// headersLen returns the length of the headers of IP and UDP; 0 if the packet is not a UDP datagram.
func headersLen(ip []byte) int {
	switch {
	case ip[0] == 0x45 && ip[9] == unix.IPPROTO_UDP:
		return ipv4Len + udpLen
	case ip[0]>>4 == 6 && len(ip) >= ipv6Len && ip[6] == unix.IPPROTO_UDP:
		return ipv6Len + udpLen
	}
	return 0
}

// The numbers of the file format pcap, version 2.4, with packets that begin with the IP header (LINKTYPE_RAW).
const (
	pcapMagic, pcapVersion, pcapLinkRaw, pcapLongest = 0xa1b2c3d4, 2 | 4<<16, 101, 1 << 18
	pcapHeaderLen, pcapRecordLen                     = 24, 16
)

// finish ends the capture, checks the ICRC of its packets by the second implementation, and writes them to a file.
// With peers the ICRC covers no headers of IP and UDP.
func (c *capture) finish(t *testing.T, peers bool, path string) {
	t.Helper()
	must.Do(t, c.file.Close())
	must.Do(t, <-c.done)
	le := binary.LittleEndian
	var b []byte
	for _, v := range []uint32{pcapMagic, pcapVersion, 0, 0, pcapLongest, pcapLinkRaw} {
		b = le.AppendUint32(b, v)
	}
	for _, op := range slices.Sorted(maps.Keys(c.kept)) {
		for _, p := range c.kept[op] {
			payload := p[headersLen(p):]
			want := icrctest.Sum(p)
			if peers {
				want = icrctest.SumUncovered(payload)
			}
			if got := le.Uint32(payload[len(payload)-roce.ICRCLen:]); got != want {
				t.Errorf("a packet with opcode %v has the ICRC %08x, want %08x: % x", op, got, want, p[:min(len(p), 100)])
			}
			for _, v := range []uint32{0, 0, uint32(len(p)), uint32(len(p))} { // time, length in the file, length
				b = le.AppendUint32(b, v)
			}
			b = append(b, p...)
		}
	}
	for _, op := range []wire.Opcode{wire.RCSendOnly, wire.RCWriteMiddle, wire.RCReadRespLast, wire.RCAcknowledge, wire.RCAtomicAck, wire.RCFlush, wire.RCAtomicWrite} {
		if len(c.kept[op]) == 0 {
			t.Errorf("the capture has no packet with opcode %v", op)
		}
	}
	must.Do(t, os.WriteFile(path, b, 0o600))
}

// dissect checks that tshark finds each packet of a capture well-formed, and logs the opcodes that it does not know.
func dissect(t *testing.T, path string) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skipf("tshark is not installed: %v", err)
	}
	var packets [][]byte
	ports := map[uint16]bool{}
	for b := must.Get(os.ReadFile(path))(t)[pcapHeaderLen:]; len(b) > 0; {
		n := pcapRecordLen + int(binary.LittleEndian.Uint32(b[pcapRecordLen-4:]))
		p := b[pcapRecordLen:n]
		packets = append(packets, p)
		ports[binary.BigEndian.Uint16(p[headersLen(p)-udpLen+udpDestination:])] = true
		b = b[n:]
	}
	args := []string{"-r", path, "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed", "-e", "_ws.col.Info"}
	for _, line := range strings.Split(string(tshark(t, "-G", "heuristic-decodes")), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "infiniband.payload" { // a protocol that it guesses from payloads
			args = append(args, "--disable-protocol", f[1])
		}
	}
	for port := range ports {
		args = append(args, "-d", fmt.Sprintf("udp.port==%d,infiniband", port))
	}
	lines := strings.Split(strings.TrimRight(string(tshark(t, args...)), "\n"), "\n")
	if len(lines) != len(packets) {
		t.Fatalf("tshark lists %d packets, want %d", len(lines), len(packets))
	}
	unknown := map[wire.Opcode]int{}
	for i, line := range lines {
		op := wire.Opcode(packets[i][headersLen(packets[i])])
		switch f := strings.Split(line, "\t"); {
		case len(f) != 3 || f[0] != strconv.Itoa(int(op)):
			t.Errorf("tshark does not find the opcode %d in a packet: %q", op, line)
		case f[1] != "":
			t.Errorf("tshark finds a packet malformed: %q: % x", line, packets[i][:min(len(packets[i]), 100)])
		case strings.Contains(f[2], "Unknown"):
			unknown[op]++
		}
	}
	t.Logf("tshark finds none of %d packets malformed; opcodes that it does not know, and the number of their packets: %v", len(packets), unknown)
}

// tshark returns what tshark prints, without settings of the user.
func tshark(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "tshark", args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark %q: %v", args, err)
	}
	return out
}

// captureVariable is the environment variable with the name of the file to which the process in the namespace
// writes its capture.
const captureVariable = "VERBENA_CAPTURE"

// captured calls run in a network namespace that has the addresses, and checks what crosses its loopback device.
func captured(t *testing.T, peers bool, addrs []string, run func()) {
	path := os.Getenv(captureVariable)
	if path == "" {
		path = filepath.Join(t.TempDir(), "capture.pcap")
		t.Setenv(captureVariable, path)
	}
	if netns.Enter(t, addrs...) {
		c := startCapture(t)
		run()
		c.finish(t, peers, path)
	} else if !t.Failed() {
		t.Run("tshark", func(t *testing.T) { dissect(t, path) })
	}
}
