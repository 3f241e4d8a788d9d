package interop

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"testing"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// The protocol of the ibv_*_pingpong programs (rdma-core, libibverbs/examples): the client sends
// first; each side sends again when its last message has completed and one has arrived, so at most
// one message of each side is outstanding (for each queue pair of ibv_srq_pingpong). A program
// receives into the memory that it sends from, so it returns what it received, which the test
// checks. With -c its server checks the first byte of each page, which the client sets to 0.
const (
	pages    = 3
	pingSize = pages * pageSize // several packets
	pageSize = 4096
	pings    = 40
)

// pattern returns the n-th message: different every time, and valid for -c.
func pattern(n, size int) []byte {
	b := make([]byte, size)
	x := uint32(n)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		if b[i] = byte(x >> 24); i%pageSize == 0 {
			b[i] = 0
		}
	}
	return b
}

// form is a way to start the program.
type form struct {
	name string
	args []string
}

// forms are polling with the check, and sleeping on completion events.
var forms = []form{{"poll", []string{"-c"}}, {"events", []string{"-c", "-e"}}}

// arguments returns the arguments of a program on its device.
func (b *bench) arguments(f form, port string, size, times int) []string {
	return append([]string{"-d", b.theirs.name, "-g", b.theirs.gid, "-p", port, "-s", strconv.Itoa(size), "-n", strconv.Itoa(times)}, f.args...)
}

// pingpong runs a test with a program as client or server, and talk as the other end, connected
// over nc. more is further arguments of the program.
func pingpong(t *testing.T, name, as string, talk func(b *bench, p *program, nc net.Conn, client bool), more ...string) {
	onDevices(t, name, func(b *bench) {
		for _, f := range forms {
			f.args = append(f.args[:len(f.args):len(f.args)], more...)
			b.run(f.name, func(b *bench) {
				size := pingSize
				if name == "ibv_ud_pingpong" {
					size = datagram
				}
				if as == "client" { // the local end is the server
					ln, err := net.Listen("tcp", "127.0.0.1:0")
					b.must(err)
					defer ln.Close()
					_, port, _ := net.SplitHostPort(ln.Addr().String())
					p := b.start(name, append(b.arguments(f, port, size, pings), "127.0.0.1")...)
					stop := context.AfterFunc(b.ctx, func() { ln.Close() })
					defer stop()
					nc, err := ln.Accept()
					b.must(err)
					defer nc.Close()
					talk(b, p, nc, false)
					return
				}
				port := b.freePort()
				p := b.start(name, b.arguments(f, port, size, pings)...)
				nc := untilListening(p, func() (net.Conn, error) {
					return net.Dial("tcp", "127.0.0.1:"+port)
				}, func(error) bool { return true })
				defer nc.Close()
				talk(b, p, nc, true)
			})
		}
	})
}

// exchanged checks the final output of a program: all exchanges took place, and no page was wrong.
func (p *program) exchanged() {
	p.b.Helper()
	out := p.succeeded()
	if !strings.Contains(out, strconv.Itoa(pings)+" iters in") || strings.Contains(out, "invalid data") {
		p.b.Errorf("%v said %q", p.cmd, tail(out))
	}
}

// player is the local end of the exchange: one message out and one in.
type player struct {
	b    *bench
	size int
	// post posts the receive; the returned function waits for it and returns the message.
	post func() func() ([]byte, error)
	// send sends a message; the returned function waits until it has completed.
	send func(message []byte) func() error
}

// play exchanges pings messages; the receive of the first is posted. A client sends first. Every
// message that arrives must be one sent before, except the first of a client program.
func (g *player) play(come func() ([]byte, error), client bool) {
	b := g.b
	b.Helper()
	var gone func() error
	ahead := 0 // sent messages that do not answer a received one
	if client {
		gone, ahead = g.send(pattern(0, g.size)), 1
	}
	for n := range pings {
		got, err := come()
		b.must(err)
		if gone != nil {
			b.must(gone())
		}
		switch before := n - 1 + ahead; {
		case len(got) != g.size:
			b.Fatalf("message %d has %d bytes, want %d", n, len(got), g.size)
		case before < 0:
			checkPages(b, got)
		case !bytes.Equal(got, pattern(before, g.size)):
			b.Fatalf("message %d is not what was sent before", n)
		}
		if next := n + ahead; next < pings { // the last one is not awaited: the program may end first
			if n < pings-1 {
				come = g.post()
			}
			gone = g.send(pattern(next, g.size))
		}
	}
}

// checkPages checks the first message of a client program with -c.
func checkPages(b *bench, got []byte) {
	b.Helper()
	for i := 0; i < len(got); i += pageSize {
		if got[i] != 0 {
			b.Errorf("page %d of the program's first message begins with %d, want 0", i/pageSize, got[i])
		}
	}
}

// plain runs a player on a connection without a manager.
func plain(kind verbs.QPType) func(b *bench, p *program, nc net.Conn, client bool) {
	return func(b *bench, p *program, nc net.Conn, client bool) {
		rt := b.open()
		region, err := rt.NewRegion(2*pingSize, verbs.AccessLocalWrite)
		b.must(err)
		defer func() { b.must(region.Close()) }()
		out, err := region.Slice(0, pingSize)
		b.must(err)
		in, err := region.Slice(pingSize, pingSize)
		b.must(err)
		prepared, err := rt.Prepare(verbena.PlainOptions{Type: kind})
		b.must(err)
		taken := func(f verbena.Future, err error) func() ([]byte, error) {
			b.must(err)
			return func() ([]byte, error) {
				r, err := f.Await(b.ctx)
				return in.Bytes()[:r.Bytes], err
			}
		}
		first := taken(prepared.PostRecv(in)) // on UC it must be there before the program sends
		connect := prepared.Accept
		if client {
			connect = prepared.Dial
		}
		c, err := connect(b.ctx, nc)
		b.must(err)
		defer b.closing(c)
		(&player{b: b, size: pingSize,
			post: func() func() ([]byte, error) { return taken(c.PostRecv(in)) },
			send: func(message []byte) func() error {
				copy(out.Bytes(), message)
				f, err := c.Send(b.ctx, out)
				b.must(err)
				return func() error { _, err := f.Await(b.ctx); return err }
			},
		}).play(first, client)
		p.exchanged()
	}
}

// Rule: programs of libibverbs, which use no connection manager, exchange data with this library
// over their own text protocol, as client and as server.
func TestIbvRcPingpongServer(t *testing.T) {
	pingpong(t, "ibv_rc_pingpong", "server", plain(verbs.QPTRC))
}

func TestIbvRcPingpongClient(t *testing.T) {
	pingpong(t, "ibv_rc_pingpong", "client", plain(verbs.QPTRC))
}

func TestIbvUcPingpongServer(t *testing.T) {
	pingpong(t, "ibv_uc_pingpong", "server", plain(verbs.QPTUC))
}

func TestIbvUcPingpongClient(t *testing.T) {
	pingpong(t, "ibv_uc_pingpong", "client", plain(verbs.QPTUC))
}
