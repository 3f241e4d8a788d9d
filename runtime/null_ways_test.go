//go:build linux && cgo && !portable

package runtime

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
)

// way leads to an address of a peer, from the address src; "" leaves that to the connection manager.
func way(src, dst string, port uint16) addrResolver {
	w := addrResolver{dst: netip.AddrPortFrom(netip.MustParseAddr(dst), port)}
	if src != "" {
		w.src = netip.AddrPortFrom(netip.MustParseAddr(src), 0)
	}
	return w
}

// dialWays is Dial of a host to which these ways lead.
func dialWays(t *testing.T, rt *Runtime, ways ...addrResolver) (*Conn, error) {
	t.Helper()
	c := must.Get(rt.newConn(nil, rt.cfg.Conn))(t)
	c.attempt = &dialAttempt{ways: ways, opts: c.opts, conn: c}
	promise, f := rt.conns.New(nil)
	c.promise = promise
	c.sh.r.Defer(c.dial)
	return f.Await(testContext(t))
}

// resolveWays is Resolve of a host to which these ways lead.
func resolveWays(t *testing.T, p *PacketConn, ways ...addrResolver) (*Peer, error) {
	t.Helper()
	r := &resolving{p: p, ways: ways}
	promise, f := p.rt.peers.New(nil)
	r.promise = promise
	p.sh.r.Defer(r.start)
	return f.Await(testContext(t))
}

// Rule: Dial tries the addresses of a host one after the other.
func TestDialTriesEachAddressOfAHost(t *testing.T) {
	client, server := nullBed.open(t, Config{}, 0), nullBed.open(t, Config{}, 1)
	ln := must.Get(server.Listen(":0"))(t)
	port := ln.Addr().Port()
	c, err := dialWays(t, client, way("", "192.0.2.1", port), way("", "fd00:5e::7", port), way("127.0.0.1", "127.0.0.2", port))
	if err != nil || c.RemoteAddr() != ln.Addr() {
		t.Errorf("the result is %v, %v; want a connection to %v", c, err, ln.Addr())
	}
}

// Rule: Resolve passes by the addresses of a host that the device does not reach, and its error names the
// first one and the device's addresses.
func TestResolveTriesEachAddressOfAHost(t *testing.T) {
	client, server := nullBed.open(t, Config{}, 0), nullBed.open(t, Config{}, 1)
	p, to := mustListenPacket(t, client, Options{}), mustListenPacket(t, server, Options{}).Addr()
	e, err := resolveWays(t, p, way("", "192.0.2.1", to.Port()), way("", "fd00:5e::7", to.Port()), way("127.0.0.1", "127.0.0.2", to.Port()))
	if err != nil || e.qpn == 0 {
		t.Errorf("the result is %v, %v; want the peer at %v", e, err, to)
	}
	_, err = resolveWays(t, p, way("", "fd00:5e::7", to.Port()), way("", "192.0.2.1", to.Port()))
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "fd00:5e::7") || !strings.Contains(err.Error(), "device null0 has the addresses [127.0.0.1]") {
		t.Errorf("the error is %v, want ErrUnreachable with the address and those of the device", err)
	}
}

// Rule: an address that is reached through another device is passed by, and the error names that device. (An
// address of this machine without a source address is reached through the device that has it.)
func TestAnAddressReachedThroughAnotherDevice(t *testing.T) {
	client, server := nullBed.open(t, Config{}, 0), nullBed.open(t, Config{}, 1)
	ln, from := must.Get(server.Listen(":0"))(t), netip.MustParseAddr("127.0.0.1")
	p, to := mustListenPacket(t, client, Options{}), mustListenPacket(t, server, Options{}).Addr().Port()
	c, err := dialWays(t, client, way("", "127.0.0.2", ln.Addr().Port()), way("127.0.0.1", "127.0.0.2", ln.Addr().Port()))
	if err != nil || c.LocalAddr().Addr() != from {
		t.Errorf("the connection is %v, %v; want one from %v", c, err, from)
	}
	e, err := resolveWays(t, p, way("", "127.0.0.2", to), way("127.0.0.1", "127.0.0.2", to))
	if err != nil || e.qpn == 0 {
		t.Errorf("the peer is %v, %v; want the second way's", e, err)
	}
	_, dialed := dialWays(t, client, way("", "127.0.0.2", ln.Addr().Port()))
	_, resolved := resolveWays(t, p, way("", "127.0.0.2", to))
	for call, err := range map[string]error{"Dial": dialed, "Resolve": resolved} {
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "through device null1") {
			t.Errorf("the error of %s is %v, want ErrUnreachable that names device null1", call, err)
		}
	}
}

// Rule: the datagrams' queue pair is at one port of the device: Resolve passes by an address that is reached through
// another port.
func TestAPeerReachedThroughAnotherPort(t *testing.T) {
	client, server := nullBed.open(t, Config{}, 0), nullBed.open(t, Config{}, 1)
	p, to := mustListenPacket(t, client, Options{}), mustListenPacket(t, server, Options{}).Addr().Port()
	must.Do(t, p.sh.r.Do(testContext(t), func() { p.port++ })) // as if the address were of the port before it
	if e, err := resolveWays(t, p, way("127.0.0.1", "127.0.0.2", to)); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "port 1") {
		t.Errorf("the result is %v, %v; want ErrUnreachable that names the port", e, err)
	}
}
