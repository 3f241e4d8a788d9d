package interop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// The protocol of rping (rdma-core, librdmacm/examples/rping.c). Each message is 16 bytes; the
// content of the server's messages has no meaning.
//
//	client                                    server
//	fills start ── where start is ──────────>
//	            <────────────────────── READ ─ its buffer
//	            <─────────────────────── go ──
//	            ── where the sink is ────────>
//	      sink  <───────────────────── WRITE ─ the text, with its NUL
//	            <─────────────────────── go ──
//	compares
const (
	infoSize  = 16
	rpings    = 20
	rpingSize = 1000
)

// info encodes struct rping_rdma_info: all in network byte order.
func info(r verbena.Remote) []byte {
	b := make([]byte, infoSize)
	binary.BigEndian.PutUint64(b, r.Addr)
	binary.BigEndian.PutUint32(b[8:], r.RKey)
	binary.BigEndian.PutUint32(b[12:], uint32(r.Length))
	return b
}

// readInfo decodes a memory range of rping, whose access the message does not contain.
func readInfo(b []byte) verbena.Remote {
	return verbena.Remote{Addr: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Length: uint64(binary.BigEndian.Uint32(b[12:])),
		Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite}
}

// pingText returns the n-th text of rping's client, of size bytes.
func pingText(n, size int) []byte {
	const first, last = 'A', 'z'
	b := fmt.Appendf(make([]byte, 0, size), "rdma-ping-%d: ", n)
	c := first + n%(last-first+1)
	for len(b) < size {
		b = append(b, byte(c))
		if c++; c > last {
			c = first
		}
	}
	b[size-1] = 0
	return b
}

// end is the local end of a conversation: a raw connection with a receive for each of the next two
// messages, and memory for the data.
type end struct {
	b     *bench
	c     *verbena.Conn
	data  *verbena.Region
	inbox verbena.Buffer
	recvs []verbena.Future // oldest first
	parts []verbena.Slice  // of each receive
}

func (b *bench) newEnd(rt *verbena.Runtime, c *verbena.Conn, size int) *end {
	b.Helper()
	e := &end{b: b, c: c}
	b.Cleanup(func() { b.closing(c) })
	var err error
	e.data, err = rt.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	b.must(err)
	b.Cleanup(func() {
		if err := e.data.Close(); err != nil {
			b.Errorf("closing the region: %v", err)
		}
	})
	e.inbox, err = rt.Alloc(2 * infoSize)
	b.must(err)
	b.Cleanup(func() { _ = e.inbox.Release() })
	for i := range 2 {
		part, err := e.inbox.Slice().Sub(i*infoSize, infoSize)
		b.must(err)
		e.post(part)
	}
	return e
}

func (b *bench) closing(c *verbena.Conn) {
	if err := c.Close(b.ctx); err != nil {
		b.Errorf("closing the connection: %v", err)
	}
}

// post posts a receive, unless the peer has closed.
func (e *end) post(part verbena.Slice) {
	e.b.Helper()
	f, err := e.c.PostRecv(part)
	if errors.Is(err, verbena.ErrPeerClosed) {
		return
	}
	e.b.must(err)
	e.recvs, e.parts = append(e.recvs, f), append(e.parts, part)
}

// hear returns the next message; the end of the connection is an error.
func (e *end) hear() ([]byte, error) {
	if len(e.recvs) == 0 {
		return nil, verbena.ErrPeerClosed // see post
	}
	r, err := e.recvs[0].Await(e.b.ctx)
	if err != nil {
		return nil, err
	}
	if r.Bytes != infoSize {
		return nil, fmt.Errorf("a message of %d bytes, want %d", r.Bytes, infoSize)
	}
	part := e.parts[0]
	e.recvs, e.parts = e.recvs[1:], e.parts[1:]
	got := bytes.Clone(part.Bytes())
	e.post(part)
	return got, nil
}

func (e *end) say(what []byte) {
	e.b.Helper()
	e.b.must(e.tell(what))
}

func (e *end) tell(what []byte) error {
	f, err := e.c.SendBytes(e.b.ctx, what)
	if err == nil {
		_, err = f.Await(e.b.ctx)
	}
	return err
}

// serve answers one rping client until it disconnects, and returns the number of pings. The data it
// reads must be rping's.
//
// The client disconnects as soon as it has the last go, and its device may leave that
// unacknowledged: Soft-RoCE completes a receive before it acknowledges the message, and
// acknowledges nothing in ERR (Linux 6.12 rxe_resp.c, do_complete). ErrPeerClosed then leaves open
// whether the client received it; the client's output shows that it did.
func (e *end) serve() (n int) {
	e.b.Helper()
	all, err := e.data.Slice(0, rpingSize)
	e.b.must(err)
	for {
		from, err := e.hear()
		if errors.Is(err, verbena.ErrPeerClosed) {
			return n
		}
		e.b.must(err)
		_, err = e.c.Do(e.b.ctx, new(verbena.ReadOp(all, readInfo(from))))
		e.b.must(err)
		if want := pingText(n, rpingSize); !bytes.Equal(all.Bytes(), want) {
			e.b.Fatalf("ping %d: read %q, want %q", n, all.Bytes(), want)
		}
		e.say(make([]byte, infoSize))
		to, err := e.hear()
		e.b.must(err)
		_, err = e.c.Do(e.b.ctx, new(verbena.WriteOp(all, readInfo(to))))
		e.b.must(err)
		err = e.tell(make([]byte, infoSize))
		n++
		if errors.Is(err, verbena.ErrPeerClosed) {
			return n
		}
		e.b.must(err)
	}
}

// ping pings one rping server times times. The data it writes back must be the data sent.
func (e *end) ping(times int) {
	e.b.Helper()
	for n := range times {
		start, sink := e.data.Bytes()[:rpingSize], e.data.Bytes()[rpingSize:]
		copy(start, pingText(n, rpingSize))
		clear(sink)
		for i := range 2 {
			at, err := e.data.Remote(i*rpingSize, rpingSize)
			e.b.must(err)
			e.say(info(at))
			_, err = e.hear()
			e.b.must(err)
		}
		if !bytes.Equal(sink, start) {
			e.b.Fatalf("ping %d: %q came back as %q", n, start, sink)
		}
	}
}

// raw is the options that rping needs: its own messages, and one READ at a time.
var raw = verbena.Options{Raw: true, RecvCredits: 2}

// rpingForms are the ways in which rping creates its queue pair: by the connection manager, and
// itself (-q).
var rpingForms = map[string][]string{"rping": nil, "rping -q": {"-q"}}

// Rule: a program of librdmacm connects to a listener, has its data read and written back, compares
// it itself (-V) and prints it (-v).
func TestRpingClient(t *testing.T) {
	onDevices(t, "rping", func(b *bench) {
		for name, form := range rpingForms {
			b.run(name, func(b *bench) {
				rt := b.open()
				ln, err := rt.ListenOptions(net.JoinHostPort(b.ours.addr.String(), "0"), raw)
				b.must(err)
				p := b.start("rping", append(form, "-c", "-v", "-V", "-C", strconv.Itoa(rpings), "-S", strconv.Itoa(rpingSize),
					"-a", b.ours.addr.String(), "-I", b.theirs.addr.String(), "-p", strconv.Itoa(int(ln.Addr().Port())))...)
				c, err := ln.Accept(b.ctx)
				b.must(err)
				if n := b.newEnd(rt, c, rpingSize).serve(); n != rpings {
					b.Errorf("rping pinged %d times, want %d", n, rpings)
				}
				shown(b, p.succeeded(), "ping data: ")
			})
		}
	})
}

// Rule: a connection can be dialed to a listening program of librdmacm, which reads the data,
// prints it (-v), and writes it back.
func TestRpingServer(t *testing.T) {
	onDevices(t, "rping", func(b *bench) {
		for name, form := range rpingForms {
			b.run(name, func(b *bench) {
				rt := b.open()
				port := b.rdmaPort()
				p := b.start("rping", append(form, "-s", "-v", "-S", strconv.Itoa(rpingSize), "-a", b.theirs.addr.String(), "-p", port)...)
				to := netip.AddrPortFrom(b.theirs.addr, atoi16(port)).String()
				c := untilListening(p, func() (*verbena.Conn, error) { return rt.DialOptions(b.ctx, to, raw) }, nobodyListens)
				b.newEnd(rt, c, 2*rpingSize).ping(rpings)
				b.closing(c)
				shown(b, p.succeeded(), "server ping data: ")
			})
		}
	})
}

func atoi16(s string) uint16 {
	n, _ := strconv.ParseUint(s, 10, 16) // it was formatted as a port
	return uint16(n)
}

// shown checks that rping has printed every ping correctly.
func shown(b *bench, out, prefix string) {
	b.Helper()
	var got []string
	for line := range strings.Lines(out) {
		if text, ok := strings.CutPrefix(line, prefix); ok {
			got = append(got, strings.TrimSuffix(text, "\n"))
		}
	}
	if len(got) != rpings {
		b.Fatalf("rping showed %d pings, want %d", len(got), rpings)
	}
	for n, text := range got {
		if want := string(pingText(n, rpingSize)[:rpingSize-1]); text != want {
			b.Errorf("rping showed %q as ping %d, want %q", text, n, want)
		}
	}
}

// run runs a subtest with its own cleanup.
func (b *bench) run(name string, test func(b *bench)) {
	b.T.Run(name, func(t *testing.T) {
		part := *b
		part.T = t
		test(&part)
	})
}
