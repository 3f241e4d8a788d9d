package runtime

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
)

// Rule: Dial and Resolve try each address of a name until one has a listener, also on the software RNIC, where each
// address is found and the request is refused. The error is that of the first address.
func TestEachAddressOfANameIsTried(t *testing.T) {
	notOnDevice(t, "the names have addresses of the software RNIC")
	client := mustOpen(t, Config{Device: first.name, lookupIP: names{
		"two":    {first.addr, second.addr},
		"single": {second.addr},
	}.lookup})
	server := mustOpen(t, Config{Device: second.name})
	ln := must.Get(server.Listen(":0"))(t)
	port := fmt.Sprintf(":%d", ln.Addr().Port())
	ctx := testContext(t)
	for _, name := range []string{"two", "single"} {
		c := must.Get(client.Dial(ctx, name+port))(t)
		if c.RemoteAddr() != ln.Addr() {
			t.Errorf("Dial of %q is connected to %v, want %v", name, c.RemoteAddr(), ln.Addr())
		}
		must.Do(t, c.Close(ctx))
	}
	const none = ":1" // no listener at either
	_, err := client.Dial(ctx, "two"+none)
	// The portable socket does not see that no socket has the port: there the request is not answered.
	failed := func(err error) bool {
		return errors.As(err, new(*RejectError)) || sys.Portable && errors.Is(err, ErrUnreachable)
	}
	if !failed(err) || !strings.Contains(err.Error(), first.addr.String()+none) {
		t.Errorf("Dial of a name without a listener: %v, want the failure at the first address", err)
	}
	p := must.Get(client.PrepareDial(ctx, "two"+port, Options{}))(t) // the program has the queue pair of the first address
	if _, err := p.Connect(ctx); !failed(err) {
		t.Errorf("Connect after PrepareDial: %v, want the rejection of the first address", err)
	}
	must.Do(t, p.Close(ctx))
	eventually(t, "the end of the attempts", func() bool { return dialing(client) == 0 && queuePairs(client) == 0 })

	from, to := mustListenPacket(t, client, Options{}), mustListenPacket(t, server, Options{}).Addr()
	if e := mustResolve(t, from, fmt.Sprintf("two:%d", to.Port())); e.qpn == 0 {
		t.Errorf("Resolve of a name found %+v, want the queue pair at its second address", e)
	}
}

// Rule: a name with an IPv4 and an IPv6 address reaches a listener of another process at either.
func TestANameReachesAListenerAtItsIPv6Address(t *testing.T) {
	localhost := names{"localhost": addrsOf("::1", "127.0.0.1")}
	server, client := mustOpen(t, Config{Provider: process(t)}), mustOpen(t, Config{Provider: process(t), lookupIP: localhost.lookup})
	ctx := testContext(t)
	for _, at := range []string{"[::1]:0", "127.0.0.1:0"} {
		ln := must.Get(server.Listen(at))(t)
		c := must.Get(client.Dial(ctx, fmt.Sprintf("localhost:%d", ln.Addr().Port())))(t)
		if c.RemoteAddr() != ln.Addr() {
			t.Errorf("Dial is connected to %v, want %v", c.RemoteAddr(), ln.Addr())
		}
		must.Do(t, c.Close(ctx))
		must.Do(t, ln.Close(ctx))
	}
}

// Rule (package net, partialDeadline): each of several addresses has an equal part of the time that is left, and at least
// leastPart of it.
func TestPartOfTheTime(t *testing.T) {
	for _, x := range []struct {
		left  time.Duration
		addrs int
		want  time.Duration
	}{
		{15 * time.Second, 1, 15 * time.Second},
		{15 * time.Second, 3, 5 * time.Second},
		{15 * time.Second, 100, leastPart},
		{time.Second, 4, time.Second},
		{0, 2, 0},
	} {
		if got := partOf(x.left, x.addrs); got != x.want {
			t.Errorf("of %v the first of %d addresses has %v, want %v", x.left, x.addrs, got, x.want)
		}
	}
}
