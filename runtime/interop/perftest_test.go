package interop

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// The programs of perftest talk over TCP (perftest 25.01, src/perftest_communication.c): the client writes a message and
// reads one of as many bytes. First come the version, two sizes and the path MTU; then twice the keys, before and after
// the queue pairs are connected; after the test the keys again, and the results. A server that returns each message,
// and its own keys for the client's, agrees to everything.
//
// The keys are a line with these fields: LID, outstanding READs, queue pair, PSN, key and address of the memory, GID, shared
// receive queue, and a NUL at the end.
const (
	keysFormat = "%04x:%04x:%06x:%06x:%08x:%016x:%s:%08x:\x00"
	keysLen    = 108
	keysFields = 7 + 16 + 1 // with that behind the last colon
)

// perfReads is how many READs and atomics of the program may be outstanding.
const perfReads = 1

// perfReceives is how many receives are posted for a program that sends.
const perfReceives = 32

// perfEnd is an end of a connection with a program of perftest.
type perfEnd struct {
	*bench
	region   *verbena.Region
	prepared *verbena.Prepared
}

func (b *bench) perfEnd(size int, mtu verbs.MTU) perfEnd {
	rt := b.open()
	// Twice the size, as the program's end has, and the programs' smallest.
	region, err := rt.NewRegion(max(2*size, 1<<16), verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	b.must(err)
	b.Cleanup(func() { b.must(region.Close()) })
	prepared, err := rt.Prepare(verbena.PlainOptions{
		// The largest message takes 0.5 s on an emulated machine alone, and 2 s beside three busy processes.
		Options: verbena.Options{RecvCredits: perfReceives, PeerTimeout: patience}, Path: bootstrap.Path{MTU: mtu, RdAtomic: perfReads, DestRdAtomic: perfReads},
	})
	b.must(err)
	return perfEnd{b, region, prepared}
}

// keys returns the line of this end.
func (s *perfEnd) keys() (string, error) {
	at, err := s.region.Remote(0, s.region.Len())
	if err != nil {
		return "", err
	}
	own := s.prepared.Local()
	gid := strings.TrimSuffix(strings.ReplaceAll(fmt.Sprintf("% x", own.GID[:]), " ", ":"), ":")
	return fmt.Sprintf(keysFormat, own.LID, perfReads, own.QPN, own.PSN, at.RKey, at.Addr, gid, 0), nil
}

// perfPeer reads the program's line: its queue pair and its memory.
func perfPeer(line string) (d bootstrap.Dest, m verbena.Remote, err error) {
	f := strings.Split(line, ":")
	if len(f) != keysFields {
		return d, m, fmt.Errorf("keys of %d fields: %q", len(f), line)
	}
	var n [6]uint64
	for i := range n {
		if n[i], err = strconv.ParseUint(f[i], 16, 64); err != nil {
			return d, m, err
		}
	}
	d.LID, d.QPN, d.PSN = uint16(n[0]), uint32(n[2]), uint32(n[3])
	m.RKey, m.Addr = uint32(n[4]), n[5]
	gid, err := hex.DecodeString(strings.Join(f[6:22], ""))
	copy(d.GID[:], gid)
	return d, m, err
}

// perfServer is the server of a program of perftest.
type perfServer struct {
	perfEnd
	conn     *verbena.Conn // once the client has told its keys
	sends    bool          // the program sends messages; otherwise it uses the region
	received atomic.Int32
	done     chan struct{} // closed when receive has ended
}

// serve answers the client until it closes the connection.
func (s *perfServer) serve(nc net.Conn) error {
	own, err := s.keys()
	if err != nil {
		return err
	}
	b := make([]byte, 4*keysLen)
	for {
		n, err := nc.Read(b)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer := b[:n]
		if n == keysLen {
			answer = []byte(own)
			if err := s.connect(string(b[:n])); err != nil {
				return err
			}
		}
		if _, err := nc.Write(answer); err != nil {
			return err
		}
	}
}

// connect connects to the client with the first keys.
func (s *perfServer) connect(keys string) error {
	if s.conn != nil {
		return nil
	}
	peer, _, err := perfPeer(keys)
	if err != nil {
		return err
	}
	if s.conn, err = s.prepared.Connect(s.ctx, peer); err != nil || !s.sends {
		return err
	}
	all, err := s.region.Slice(0, s.region.Len())
	if err != nil {
		return err
	}
	waiting := make([]verbena.Future, perfReceives)
	for i := range waiting {
		if waiting[i], err = s.conn.PostRecv(all); err != nil {
			return err
		}
	}
	go s.receive(all, waiting)
	return nil
}

// receive counts messages, and posts a receive for each, until the connection ends.
func (s *perfServer) receive(all verbena.Slice, waiting []verbena.Future) {
	defer close(s.done)
	for i := 0; ; i = (i + 1) % len(waiting) {
		_, err := waiting[i].Await(s.ctx)
		if err == nil {
			s.received.Add(1)
			waiting[i], err = s.conn.PostRecv(all)
		}
		if err != nil {
			for _, f := range waiting {
				f.Discard()
			}
			return
		}
	}
}

// perfLoad is what a program of perftest does.
type perfLoad struct {
	name  string
	size  int // 0: of words of 8 bytes, which are not an option
	times int
	mtu   verbs.MTU
}

// arguments returns the command line of the program, without its server's name.
func (l perfLoad) arguments(d device, port string) []string {
	args := []string{"-d", d.name, "-x", d.gid, "-p", port, "-m", strconv.Itoa(int(l.mtu.Bytes())), "-n", strconv.Itoa(l.times), "-F"}
	if l.size > 0 {
		args = append(args, "-s", strconv.Itoa(l.size))
	}
	return args
}

// largestPerf returns the size of the largest messages: 1 MiB by default, because 8 MiB, the largest of perftest, take
// 28 s more under emulation; VERBENA_PERFTEST_MIB in make stress-rxe.
func largestPerf(t *testing.T) int {
	if s := os.Getenv("VERBENA_PERFTEST_MIB"); s != "" {
		return must.Get(strconv.Atoi(s))(t) << 20
	}
	return 1 << 20
}

// Rule: the programs of perftest measure the software RNIC, with small and large messages and the smallest and largest
// path MTUs, as clients and as servers. Every message arrives.
func TestPerftest(t *testing.T) {
	// Only messages of several packets depend on the MTU.
	words := []perfLoad{{"", 0, 100, verbs.MTU4096}}
	messages := []perfLoad{{"", 1, 100, verbs.MTU1024}, {"", 64 << 10, 20, verbs.MTU1024}, {"", largestPerf(t), 5, verbs.MTU4096}}
	for name, loads := range map[string][]perfLoad{"ib_send_bw": messages, "ib_write_bw": messages, "ib_read_bw": messages, "ib_atomic_lat": words} {
		t.Run(name, func(t *testing.T) {
			onPairs(t, name, softRNICPair, func(b *bench) {
				for _, l := range loads {
					l.name = name
					load := fmt.Sprintf("%d bytes, MTU %d", l.size, l.mtu.Bytes())
					b.run("client, "+load, func(b *bench) { b.perfClient(l) })
					b.run("server, "+load, func(b *bench) { b.perfServer(l) })
				}
			})
		})
	}
}

// perfClient runs a client of perftest with a server of ours.
func (b *bench) perfClient(l perfLoad) {
	s := &perfServer{perfEnd: b.perfEnd(l.size, l.mtu), sends: l.name == "ib_send_bw", done: make(chan struct{})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	defer ln.Close()
	defer context.AfterFunc(b.ctx, func() { ln.Close() })()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	p := b.start(l.name, append(l.arguments(b.theirs, port), "127.0.0.1")...)
	nc, err := ln.Accept()
	b.must(err)
	defer nc.Close()
	defer context.AfterFunc(b.ctx, func() { nc.Close() })()
	b.must(s.serve(nc))
	p.succeeded()
	if s.conn == nil {
		b.Fatal("the program told no keys")
	}
	b.closing(s.conn)
	if !s.sends {
		return
	}
	<-s.done
	if n := s.received.Load(); n != int32(l.times) {
		b.Errorf("%d messages arrived, want %d", n, l.times)
	}
}
