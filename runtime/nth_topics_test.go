package runtime

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/verbs"
)

// nthTopics has a short scenario for each topic that nthPaced.talk does not cover. Other test files
// add scenarios in their init functions.
var nthTopics = map[string]func(*nthPaced){
	"persist": (*nthPaced).persists, "windows": (*nthPaced).opens, "shared": (*nthPaced).shares, "packets": (*nthPaced).posts,
}

// Rule: whichever call of the provider fails in a scenario of nthTopics, the scenario ends and leaves
// nothing behind. If the scenario returns an error, the error names the call, or is ErrDeviceRemoved if
// the device was removed.
func TestNthCallOfATopicFailsOnVirtualTime(t *testing.T) {
	for name, scenario := range nthTopics {
		t.Run(name, func(t *testing.T) { onVirtualTime(t, scenario) })
	}
}

// wrong records a wrong result of an operation that succeeded. If a call of the provider fails,
// operations may fail, but must not have wrong results.
func (r *nthPaced) wrong(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// region returns a new region of rt with n bytes, and a slice of all its bytes. The argument
// salt determines the content. The last result is false if a call failed.
func (r *nthPaced) region(rt *Runtime, n int, access verbs.AccessFlags, salt uint64) (*Region, Slice, bool) {
	g, err := rt.NewRegion(n, access)
	if !r.note("making a region", err) {
		return nil, Slice{}, false
	}
	fillFrom(g.Bytes(), salt)
	all, err := g.Slice(0, n)
	return g, all, r.note("getting a slice of a region", err)
}

// give closes g, unless g is nil.
func (r *nthPaced) give(g *Region) {
	if g != nil {
		r.note("closing a region", g.Close())
	}
}

// persists writes data and flushes the data. Then it writes one word with an ATOMIC_WRITE,
// and flushes the word.
func (r *nthPaced) persists() {
	ln, err := r.server.Listen(":0")
	if !r.note("listening", err) {
		return
	}
	target, _, ok := r.region(r.server, 4096, allAccess|verbs.AccessFlushGlobal, 0)
	defer r.give(target)
	source, local, fine := r.region(r.client, 4096, allAccess, 7)
	defer r.give(source)
	a, b := r.meet(ln, Options{})
	defer r.hangUp(a, b)
	if a == nil || b == nil || !ok || !fine {
		return
	}
	remote, err := target.Remote(0, 4096)
	r.note("getting the descriptor of the region", err)
	f, err := a.Write(r.ctx, local, remote)
	_, wrote := get(r, "writing", f, err)
	f, err = a.Start(r.ctx, new(FlushOp(remote, verbs.FlushGlobal)))
	if _, ok := get(r, "flushing", f, err); ok && wrote && !bytes.Equal(target.Bytes(), source.Bytes()) {
		r.wrong("the WRITE and the FLUSH succeeded, but the target region differs from the source region")
	}
	f, err = a.Start(r.ctx, new(AtomicWriteOp(remote, 0x1234)))
	if _, ok := get(r, "writing the word", f, err); !ok {
		return
	}
	f, err = a.Start(r.ctx, new(FlushOp(remote, verbs.FlushGlobal)))
	if _, ok := get(r, "flushing the word", f, err); ok && binary.NativeEndian.Uint64(target.Bytes()) != 0x1234 {
		r.wrong("the ATOMIC_WRITE and the FLUSH succeeded, but the word is 0x%x, want 0x1234", binary.NativeEndian.Uint64(target.Bytes()))
	}
}

// opens binds a window three times. The server, which owns the window, invalidates the
// first binding. The client invalidates the second binding. Closing the window ends the third binding.
// A second window stays bound until its connection is closed, which closes the window.
func (r *nthPaced) opens() {
	ln, err := r.server.Listen(":0")
	if !r.note("listening", err) {
		return
	}
	target, _, ok := r.region(r.server, 4096, windowAccess, 0)
	defer r.give(target)
	source, local, fine := r.region(r.client, 64, allAccess, 3)
	defer r.give(source)
	a, b := r.meet(ln, Options{})
	defer r.hangUp(a, b)
	if a == nil || b == nil || !ok || !fine {
		return
	}
	var windows [2]*Window
	for i := range windows {
		if windows[i], err = b.NewWindow(); !r.note("making a window", err) {
			return
		}
	}
	w := windows[0]
	bind := func(w *Window, off int) (Remote, bool) {
		at, f, err := w.Bind(r.ctx, target, off, 64, verbs.AccessRemoteWrite)
		_, ok := get(r, "binding", f, err)
		return at, ok
	}
	at, ok := bind(w, 0)
	if !ok {
		return
	}
	f, err := a.Write(r.ctx, local, at)
	if _, ok := get(r, "writing through the window", f, err); ok && !bytes.Equal(target.Bytes()[:64], source.Bytes()) {
		r.wrong("the WRITE through the window succeeded, but the target differs from the source")
	}
	f, err = w.Invalidate(r.ctx)
	if _, ok := get(r, "invalidating the window", f, err); !ok {
		return
	}
	if at, ok = bind(w, 64); !ok {
		return
	}
	coming := b.Recv()
	f, err = a.Start(r.ctx, new(SendInvalidateOp(Slice{}, at)))
	if _, ok := get(r, "sending with invalidate", f, err); ok {
		if m, ok := get(r, "receiving", coming, nil); ok {
			if m.Invalidated != w {
				r.wrong("the message invalidated the window %p, want %p", m.Invalidated, w)
			}
			r.note("releasing a message", m.Release())
		}
	}
	if coming.Valid() {
		coming.Discard()
	}
	if _, ok = bind(w, 128); ok {
		_, _ = bind(windows[1], 192) // hangUp closes the connection, which closes this window
		r.note("closing a window", w.Close())
	}
}

// shares lets two connections, (a, b) and (c, d), receive from one shared receive queue. It
// closes the first connection before the second connection.
func (r *nthPaced) shares() {
	s, err := r.server.NewSharedRecv(4, 1)
	if !r.note("making a SharedRecv", err) {
		return
	}
	ln, err := r.server.ListenOptions(":0", Options{Raw: true, Shared: s})
	if !r.note("listening", err) {
		return
	}
	a, b := r.meet(ln, Options{Raw: true})
	c, d := r.meet(ln, Options{Raw: true})
	defer r.hangUp(a, b, c, d)
	space, all, ok := r.region(r.server, 4*64, allAccess, 0)
	defer r.give(space)
	if !ok || a == nil || b == nil || c == nil || d == nil {
		return
	}
	var out []futures.Future[Arrival]
	for i := range 4 {
		part, err := all.Sub(i*64, 64)
		r.note("getting a part of the slice", err)
		f, err := s.PostRecv(part)
		if r.note("posting a shared receive", err) {
			out = append(out, f)
		}
	}
	// After this Flush the device has accepted or refused the receives.
	r.note("flushing the reactor", s.sh.r.Do(context.Background(), s.sh.r.Flush))
	say := func(what string, from, to *Conn) {
		if len(out) == 0 || out[0].Settled() { // without a posted receive the send would not complete
			return
		}
		f, err := from.SendBytes(r.ctx, []byte(what))
		if _, ok := get(r, what, f, err); !ok {
			return
		}
		at := out[0]
		out = out[1:]
		if x, ok := get(r, "waiting for a shared receive", at, nil); ok && (x.Conn != to || int(x.Bytes) != len(what)) {
			r.wrong("the message %q came as %d bytes on connection %p, want %d bytes on %p", what, x.Bytes, x.Conn, len(what), to)
		}
	}
	say("send by a", a, b)
	say("send by c", c, d)
	r.hangUp(a, b)
	say("2nd send by c", c, d)
	r.hangUp(c, d)
	var again error
	for range nthCloses {
		if again = s.Close(); r.note("closing the SharedRecv", again) {
			break
		}
	}
	for _, f := range out {
		if _, err := reached(r, f, nthTimeout); again == nil && !errors.Is(err, ErrClosed) {
			r.note("a shared receive without a message", err)
		}
	}
}

// posts exchanges datagrams in both directions, and sends one to a multicast group.
func (r *nthPaced) posts() {
	o := Options{SendDepth: 4, RecvCredits: 4}
	a, err := r.client.ListenPacket(":0", o)
	r.note("ListenPacket of the client", err)
	b, err := r.server.ListenPacket(":0", o)
	r.note("ListenPacket of the server", err)
	out, local, ok := r.region(r.client, 64, allAccess, 5)
	defer r.give(out)
	if a == nil || b == nil || !ok {
		return
	}
	ask := &resolving{p: a, ways: []addrResolver{{src: netip.AddrPortFrom(a.rt.addr, 0), dst: b.Addr()}}}
	var asked futures.Future[*Peer]
	ask.promise, asked = r.client.peers.New(nil)
	a.sh.r.Defer(ask.start)
	if to, ok := get(r, "resolving", asked, nil); ok {
		k, came := r.datagram("sending a datagram", a, b, to, local)
		if came {
			r.answer(a, b, k, local.Len())
		}
		r.note("closing a peer", to.Close())
	}
	group := netip.MustParseAddr("239.1.2.3")
	_, joining := a.join(group)
	mine, ok := get(r, "joining the client", joining, nil)
	_, joining = b.join(group)
	_, fine := get(r, "joining the server", joining, nil)
	if ok && fine {
		if k, came := r.datagram("sending a datagram to the group", a, b, mine, local); came {
			r.note("releasing a datagram", k.Release())
		}
		r.note("leaving the group", mine.Close())
	}
	for _, p := range []*PacketConn{a, b} {
		if err := p.Err(); err != nil {
			r.note("a PacketConn had failed", err)
		}
		p.setCause(ErrConnClosed)
		p.sh.r.Defer(p.end)
		if r.gone("closing a PacketConn", p.closed) {
			r.note("closing a PacketConn", p.closeErr)
		}
	}
}

// datagram sends one datagram, and reports whether the datagram arrived. If a call of the
// provider fails, the datagram may be lost: then the method only adds 1 to *r.lost.
func (r *nthPaced) datagram(what string, from, to *PacketConn, at *Peer, local Slice) (k Packet, came bool) {
	coming := to.Recv()
	f, err := from.Send(r.ctx, at, local)
	if _, ok := get(r, what, f, err); !ok {
		coming.Discard()
		return k, false
	}
	switch k, err = reached(r, coming, nthTimeout); {
	case errors.Is(err, errNever):
		*r.lost++
		return k, false
	case err != nil:
		return k, r.note(what, err)
	case len(k.Data) != local.Len():
		r.wrong("%s: %d bytes arrived, want %d", what, len(k.Data), local.Len())
	}
	return k, true
}

// answer releases the datagram k, which b received from a, and sends a datagram of n bytes
// from b to a.
func (r *nthPaced) answer(a, b *PacketConn, k Packet, n int) {
	back, err := b.PeerOf(k)
	r.note("PeerOf", err)
	r.note("releasing a datagram", k.Release())
	in, local, ok := r.region(r.server, n, allAccess, 9)
	defer r.give(in)
	if back == nil || !ok {
		return
	}
	if k, came := r.datagram("sending a reply", b, a, back, local); came {
		r.note("releasing a reply", k.Release())
	}
}
