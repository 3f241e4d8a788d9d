//go:build linux && cgo && !portable

package runtime

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/verbstest/nth"
)

// told checks that a runtime hears that its device was taken out.
func told(t *testing.T, rt *Runtime, p *Prepared) {
	t.Helper()
	select {
	case <-p.c.Done():
		lost(t, "what was prepared", p.c.Err())
	case <-time.After(10 * time.Second):
		t.Error("nobody told the runtime that its device was removed")
	}
	_, err := rt.Prepare(PlainOptions{})
	lost(t, "preparing", err)
}

// Rule: a runtime of which no connection has an identifier is told of the removal
// of its device, on whichever reactor, though the device itself says nothing.
func TestRuntimeWithoutIdentifiersIsToldOfARemoval(t *testing.T) {
	provider, null := nullDevice(t)
	rt := mustOpen(t, Config{Provider: provider, Device: "null0", Reactors: 2, NoCallerDriving: true, Spin: -1})
	other := mustOpen(t, Config{Provider: provider, Device: "null1"})
	ps := []*Prepared{prepare(t, rt, PlainOptions{}), prepare(t, rt, PlainOptions{})} // one of each reactor
	bystander := prepare(t, other, PlainOptions{})
	if err := null.Remove("null0"); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		told(t, rt, p)
	}
	if err := bystander.c.Err(); err != nil {
		t.Errorf("a connection of another device ended with %v", err)
	}
}

// Rule: a device whose address the connection manager does not take can be used all
// the same; one that has several is watched by the first that it takes.
func TestRemovalIsWatchedWhereAnAddressCanBeBound(t *testing.T) {
	provider, null := nullDevice(t)
	plan := &nth.Plan{Op: "rdma_bind_addr", N: 1, Errno: syscall.EADDRNOTAVAIL}
	rt := mustOpen(t, Config{Provider: nth.Wrap(provider, plan), Device: "null0"})
	if _, struck := plan.Struck(); !struck || rt.shards[0].watch != nil {
		t.Fatalf("the address was refused: %v; the watch is %v", struck, rt.shards[0].watch)
	}
	prepare(t, rt, PlainOptions{})
	plan = &nth.Plan{Op: "rdma_bind_addr", N: 1, Errno: syscall.EADDRNOTAVAIL}
	rt = mustOpen(t, Config{Provider: twoAddresses{nth.Wrap(provider, plan)}, Device: "null0"})
	p := prepare(t, rt, PlainOptions{})
	if err := null.Remove("null0"); err != nil {
		t.Fatal(err)
	}
	told(t, rt, p)
}

// twoAddresses has its devices say each address twice.
type twoAddresses struct{ verbs.Provider }

func (p twoAddresses) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	if err != nil {
		return nil, err
	}
	return &twiceContext{c, slices.Repeat(c.Device().Addr, 2)}, nil
}

type twiceContext struct {
	verbs.Context
	addr []netip.Addr
}

func (c *twiceContext) Device() verbs.DeviceInfo {
	d := c.Context.Device()
	d.Addr = c.addr
	return d
}
