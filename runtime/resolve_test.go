package runtime

import (
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// deaf is a provider that misses every answer to a question for an address, and
// finds the address when the question's time is over, from the given time on only.
type deaf struct {
	verbs.Provider
	from time.Duration

	mu    sync.Mutex
	asked []time.Duration // of all identifiers, in order
}

type deafChannel struct {
	verbs.CMChannel
	p *deaf

	mu   sync.Mutex
	ids  map[verbs.CMID]*deafID // by what they are below
	late []verbs.CMEvent        // not taken yet
	ring func()
}

type deafID struct {
	verbs.CMID
	ch *deafChannel
}

func (p *deaf) CreateCMChannel() (verbs.CMChannel, error) {
	ch, err := p.Provider.CreateCMChannel()
	return &deafChannel{CMChannel: ch, p: p, ids: map[verbs.CMID]*deafID{}}, err
}

func (ch *deafChannel) Notify(ring func()) {
	ch.mu.Lock()
	ch.ring = ring
	ch.mu.Unlock()
	ch.CMChannel.Notify(ring)
}

func (ch *deafChannel) CreateID(ps verbs.PortSpace, userData uint64) (verbs.CMID, error) {
	id, err := ch.CMChannel.CreateID(ps, userData)
	if err != nil {
		return nil, err
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ids[id] = &deafID{id, ch}
	return ch.ids[id], nil
}

func (ch *deafChannel) GetEvent() (verbs.CMEvent, bool, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.late) > 0 {
		ev := ch.late[0]
		ch.late = ch.late[1:]
		return ev, true, nil
	}
	ev, ok, err := ch.CMChannel.GetEvent()
	if id := ch.ids[ev.ID]; id != nil {
		ev.ID = id
	}
	return ev, ok, err
}

func (ch *deafChannel) Ack(ev verbs.CMEvent) {
	if id, ours := ev.ID.(*deafID); ours {
		ev.ID = id.CMID
	}
	if ev.Type != verbs.CMAddrError {
		ch.CMChannel.Ack(ev)
	}
}

func (id *deafID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	ch := id.ch
	ch.p.mu.Lock()
	ch.p.asked = append(ch.p.asked, timeout)
	ch.p.mu.Unlock()
	if timeout >= ch.p.from {
		return id.CMID.ResolveAddr(src, dst, timeout)
	}
	ch.mu.Lock()
	ch.late = append(ch.late, verbs.CMEvent{Type: verbs.CMAddrError, ID: id, Status: -int(syscall.ETIMEDOUT)})
	ring := ch.ring
	ch.mu.Unlock()
	ring()
	return nil
}

// Rule: a question for an address is asked again, for longer, when its time was too
// short, by connections and by datagrams; Soft-RoCE's first connection took all of
// Config.ConnectTimeout, and failed.
func TestAddressesAreAskedForAgain(t *testing.T) {
	notOnDevice(t, "its questions are late by a script")
	p := &deaf{Provider: soft.Default(), from: 4 * firstLook}
	client, server := mustOpen(t, Config{Provider: p, Device: "soft0"}), mustOpen(t, Config{Device: "soft1"})
	ln, err := server.Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	seat, err := ln.AcceptAsync()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Dial(testContext(t), ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if _, err := seat.Await(testContext(t)); err != nil {
		t.Fatal(err)
	}
	there := mustListenPacket(t, server, Options{})
	mustResolve(t, mustListenPacket(t, client, Options{}), there.Addr().String())
	want := []time.Duration{firstLook, 2 * firstLook, 4 * firstLook}
	if len(p.asked) != 2*len(want) {
		t.Fatalf("asked %v, want twice %v", p.asked, want)
	}
	for i, d := range p.asked {
		if d != want[i%len(want)] {
			t.Errorf("question %d took %v, want %v", i, d, want[i%len(want)])
		}
	}
}

// Rule: who never finds the address is told so when Config.ConnectTimeout is over.
func TestAddressesAreNotAskedForForEver(t *testing.T) {
	notOnDevice(t, "its questions are late by a script")
	p := &deaf{Provider: soft.Default(), from: time.Hour}
	client := mustOpen(t, Config{Provider: p, Device: "soft0", ConnectTimeout: 20 * time.Millisecond})
	_, err := client.Dial(testContext(t), "127.0.0.2:1")
	mistake(t, "dialing", err, ErrConnectTimeout, "20ms")
	_, err = mustListenPacket(t, client, Options{}).Resolve(testContext(t), "127.0.0.2:1")
	mistake(t, "resolving", err, ErrConnectTimeout, "20ms")
}
