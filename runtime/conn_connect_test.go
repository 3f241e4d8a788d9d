package runtime

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// Rule: if a connection is closed during its setup, the buffers of all its receives are freed,
// whether the receives were posted or not.
func TestSetupThatFailsGivesItsBuffersBack(t *testing.T) {
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	opts := must.Get(client.inherit(Options{RecvCredits: 8}))(t)
	c := must.Get(client.newConn(nil, opts))(t)
	p, f := client.conns.New(nil)
	c.promise = p
	c.attempt = &dialAttempt{ways: must.Get(client.destinations(testContext(t), ln.Addr().String()))(t), opts: opts, conn: c}
	boom := errors.New("boom")
	c.q.Fail(boom) // Close also fails the queue, with ErrConnClosed
	if err := c.sh.r.Do(testContext(t), func() { c.dial() }); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Await(testContext(t)); !errors.Is(err, boom) || !errors.Is(err, reactor.ErrQueueFailed) {
		t.Fatalf("dialing ended with %v, want an error that matches %v and %v", err, boom, reactor.ErrQueueFailed)
	}
	<-c.closed
	if st := client.MemoryStats(); st.Buffers != 0 {
		t.Fatalf("%d buffers are still leased, want 0", st.Buffers)
	}
}

// Rule: when Dial returns at the client, the receives of the server's end are already posted. This
// holds even if the loop of the server's reactor (the reactor's own goroutine) does not run.
func TestReceivesArePostedBeforeThePeerKnows(t *testing.T) {
	notOnDevice(t, "a device makes queue pairs without the turn, and the test blocks the loop that is to go on then")
	server, client := mustOpen(t, Config{Device: second.name}), mustOpen(t, Config{Device: first.name})
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	ctx := testContext(t)
	got := make(chan error, 1)
	// The function given to Do blocks the loop, and the listener needs the loop to make a connection. So
	// the test makes the server's connection itself.
	c, err := server.newConn(nil, ln.opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.shards[0].r.Do(ctx, func() {
		go func() {
			c, err := client.Dial(ctx, ln.Addr().String())
			if err == nil {
				var f Future
				if f, err = c.SendBytes(ctx, []byte("first")); err == nil {
					_, err = f.Await(ctx)
				}
			}
			got <- err
		}()
		ln.backlog.preparing = maxPreparing // so that the listener begins no handshake by itself
		for r := (*request)(nil); ; {       // handle the connection events in place of the blocked loop
			select {
			case err := <-got:
				if err != nil {
					t.Errorf("the client dialed and sent a message while the server's loop was blocked: %v, want no error", err)
				}
				return
			default:
				server.shards[0].takeCM()
			}
			if r == nil && len(ln.backlog.unfinished) > 0 {
				ln.backlog.preparing = 0
				begun, _, _ := ln.backlog.next(time.Time{}, 1)
				r = begun.req
				delete(ln.sh.targets, r.id)
				c.from, r.conn = r, c
				c.accept(r, func() { ln.sh.r.Defer(r.made) })
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := seat.Await(ctx); err != nil {
		t.Fatal(err)
	}
}

// Rule: if a frame returns a credit before the dialing end has received ESTABLISHED, Conn.takeCreditsOf
// returns a protocol error. (The dialing end has sent nothing yet, so the peer has no credit to
// return.)
func TestCreditsBeforeEstablishedAreRefused(t *testing.T) {
	rt := mustOpen(t, Config{})
	opts, err := rt.inherit(Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := must.Get(rt.newConn(nil, opts))(t)
	err = c.takeCreditsOf(proto.Frame{Kind: proto.Credit, Credits: 1})
	mistake(t, "take of a frame that returns a credit", err, ErrPeerProtocol, "1")
	mistake(t, "abandon with the error of take", c.abandon(err), ErrPeerProtocol)
}

// deaf is a provider whose short address resolutions fail: if the timeout of a resolution is shorter
// than deaf.from, the resolution ends with ADDR_ERROR and ETIMEDOUT.
type deaf struct {
	verbs.Provider
	from time.Duration

	mu    sync.Mutex
	asked []time.Duration // the timeouts of all resolutions, in order
}

// deafChannel is an event channel of deaf. Its GetEvent first returns the ADDR_ERROR events of
// resolutions that fail, and then the events of the wrapped channel.
type deafChannel struct {
	verbs.CMChannel
	p *deaf

	mu   sync.Mutex
	ids  map[verbs.CMID]*deafID // the key is the wrapped identifier
	late []verbs.CMEvent        // ADDR_ERROR events that GetEvent has not returned yet
	ring func()                 // tells the reactor that the channel has an event
}

// deafID is an identifier of a deafChannel. If the timeout given to ResolveAddr is shorter than
// deaf.from, ResolveAddr appends an ADDR_ERROR event to deafChannel.late.
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

// Rule: if an address resolution times out, it is repeated with twice the timeout, for connections
// and for datagrams. (The kernel may miss the ARP reply to the first attempt. Without short, repeated
// attempts the first connection on Soft-RoCE would use up Config.ConnectTimeout and fail.)
func TestAddressesAreAskedForAgain(t *testing.T) {
	notOnDevice(t, "the test makes address resolutions time out")
	p := &deaf{Provider: soft.Default(), from: 4 * firstLook}
	client, server := mustOpen(t, Config{Provider: p, Device: "soft0"}), mustOpen(t, Config{Device: "soft1"})
	ln := must.Get(server.Listen(":0"))(t)
	seat := must.Get(ln.AcceptAsync())(t)
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
		t.Fatalf("the address resolutions had the timeouts %v, want %v for the connection and again for the datagrams", p.asked, want)
	}
	for i, d := range p.asked {
		if d != want[i%len(want)] {
			t.Errorf("address resolution %d had the timeout %v, want %v", i, d, want[i%len(want)])
		}
	}
}

// Rule: if every address resolution times out, Dial and Resolve fail after Config.ConnectTimeout, and
// the error names this limit.
func TestAddressesAreNotAskedForForEver(t *testing.T) {
	notOnDevice(t, "the test makes address resolutions time out")
	p := &deaf{Provider: soft.Default(), from: math.MaxInt64}
	client := mustOpen(t, Config{Provider: p, Device: "soft0", ConnectTimeout: 20 * time.Millisecond})
	_, err := client.Dial(testContext(t), "127.0.0.2:1")
	mistake(t, "dialing", err, ErrConnectTimeout, "20ms")
	_, err = mustListenPacket(t, client, Options{}).Resolve(testContext(t), "127.0.0.2:1")
	mistake(t, "resolving", err, ErrConnectTimeout, "20ms")
}

// met connects two new runtimes. It returns the dialing end d and the accepting end l,
// or the error of the dialing call.
func met(t *testing.T, b bed, dial, listen Options) (d, l *Conn, err error) {
	t.Helper()
	server, client := b.open(t, Config{}, 1), b.open(t, Config{}, 0)
	ln := must.Get(server.ListenOptions(":0", listen))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	ctx := testContext(t)
	if d, err = client.DialOptions(ctx, ln.Addr().String(), dial); err != nil {
		seat.Discard()
		return nil, nil, err
	}
	l = must.Get(seat.Await(ctx))(t)
	return d, l, nil
}

// Rule: if the peer of a raw connection is a program that does not use this package, the connection
// works, whichever end dials. The peer's private data may have any content, and arrives complete. (In
// this test a bare connection plays such a peer. It sends no hello, the header that this package puts
// before the user's private data.)
func TestRawPeerThatIsNoRuntime(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		for name, said := range map[string][]byte{
			"no private data":      nil,
			"some private data":    []byte("NVMe says this"),
			"maximum private data": bytes.Repeat([]byte{7}, verbs.MaxPrivateConnect),
		} {
			t.Run(name, func(t *testing.T) {
				raw, bare := Options{Raw: true}, Options{Raw: true, Bare: true, PrivateData: said}
				for _, c := range []struct{ dial, listen Options }{{bare, raw}, {raw, bare}} {
					d, l, err := met(t, b, c.dial, c.listen)
					if err != nil {
						t.Fatal(err)
					}
					runtime, heard := d, d.PrivateData()
					if c.dial.Bare {
						runtime, heard = l, l.PrivateData()
					}
					if len(heard) < len(said) || !bytes.Equal(heard[:len(said)], said) || len(bytes.Trim(heard[len(said):], "\x00")) > 0 || said == nil && heard != nil {
						t.Errorf("the peer's private data arrived as %q, want %q, followed by zeros only", heard, said)
					}
					if !runtime.Raw() {
						t.Error("Raw returns false, want true")
					}
					say(t, d, l, "a message")
					say(t, l, d, "an answer")
				}
			})
		}
	})
}

// say sends a message over a raw connection and checks that the message arrives.
func say(t *testing.T, from, to *Conn, what string) {
	t.Helper()
	buf := must.Get(to.rt.Alloc(100))(t)
	defer buf.Release()
	got := must.Get(to.PostRecv(buf.Slice()))(t)
	// Flush posts the receive before the message is sent. A UC queue pair would drop a message for
	// which no receive is posted.
	if err := to.sh.r.Do(testContext(t), to.sh.r.Flush); err != nil {
		t.Fatal(err)
	}
	sent, err := from.SendBytes(testContext(t), []byte(what))
	done(t, sent, err)
	if r := done(t, got, nil); string(buf.Bytes()[:r.Bytes]) != what {
		t.Errorf("received %q, want %q", buf.Bytes()[:r.Bytes], what)
	}
}

// Rule: if one end is managed and its peer sends no hello (the header that this package puts before
// the user's private data), the attempt to connect fails with a protocol error. If one end is managed
// and the hello of its peer says raw, the listener rejects the request because the modes differ.
func TestManagedPeerThatIsNoRuntime(t *testing.T) {
	onBeds(t, func(t *testing.T, b bed) {
		bare, managed := Options{Raw: true, Bare: true}, Options{}
		_, _, err := met(t, b, bare, managed)
		rejected(t, err, proto.RejectProtocol)
		if _, _, err = met(t, b, managed, bare); !errors.Is(err, ErrPeerProtocol) {
			t.Errorf("dialing a listener that sends no hello: %v, want ErrPeerProtocol", err)
		}
		_, _, err = met(t, b, managed, Options{Raw: true})
		rejected(t, err, proto.RejectMode)
	})
}

func rejected(t *testing.T, err error, code uint8) {
	t.Helper()
	if e, ok := errors.AsType[*RejectError](err); !ok || e.Code != code {
		t.Errorf("dialing: %v, want a RejectError with code %d", err, code)
	}
}

// Rule: if the hello of a peer has an unknown version, a raw connection refuses the hello, and does
// not treat its bytes as user data. A bare connection expects no hello, so it treats the same bytes
// as user data.
func TestBrokenHelloOfARawPeer(t *testing.T) {
	h := proto.EncodeHello(proto.Hello{Raw: true})
	h[4]++
	_, err := readHello(h, Options{Raw: true})
	e, ok := errors.AsType[*ProtocolError](err)
	if !ok || *e != (ProtocolError{"hello", "version", 5, 4}) || !errors.Is(err, ErrPeerProtocol) || !errors.Is(err, ErrProtocol) {
		t.Errorf("a hello of version 5 on a raw connection: %v, want a ProtocolError that names the version 5 and the wanted version 4", err)
	}
	if got, err := readHello(h, Options{Raw: true, Bare: true}); err != nil || !bytes.Equal(got.User, h) {
		t.Errorf("the same hello on a bare connection: user data %q, %v; want all its bytes, %q", got.User, err, h)
	}
}

// Rule: if a bare connection (a connection without a hello) has more private data than a request or
// reply can carry, Dial and Listen fail. If Options.Bare is set without Options.Raw, Listen fails, too.
func TestBarePrivateDataIsBounded(t *testing.T) {
	rt := mustOpen(t, Config{})
	_, err := rt.DialOptions(testContext(t), "127.0.0.2:1", Options{Raw: true, Bare: true, PrivateData: make([]byte, verbs.MaxPrivateConnect+1)})
	mistake(t, "dialing with one byte of private data too many", err, ErrConfig, "57", "56")
	_, err = rt.ListenOptions(":0", Options{Raw: true, Bare: true, PrivateData: make([]byte, verbs.MaxPrivateAccept+1)})
	mistake(t, "listening with one byte of private data too many", err, ErrConfig, "197", "196")
	if MaxDialData != 24 || MaxAcceptData != 164 {
		t.Errorf("MaxDialData is %d and MaxAcceptData is %d, want 24 and 164", MaxDialData, MaxAcceptData)
	}
	_, err = rt.ListenOptions(":0", Options{Bare: true})
	mistake(t, "listening with Bare and without Raw", err, ErrConfig, "Bare")
}
