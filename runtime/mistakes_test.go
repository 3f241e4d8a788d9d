package runtime

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// The function mistake checks that err matches kind, and that the text of err contains every string
// of the list says.
func mistake(t *testing.T, what string, err, kind error, says ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: got %v, want an error that is %v", what, err, kind)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

// Rule: the errors of Open, Listen and Dial name the mistake.
func TestMistakesBeforeConnecting(t *testing.T) {
	ctx := testContext(t)
	_, err := Open(Config{Device: "mlx5_0"})
	mistake(t, "unknown device", err, verbs.ErrUnknownDevice, "mlx5_0", "soft0", "soft1")
	_, err = Open(Config{Reactors: -1})
	mistake(t, "bad reactors", err, ErrConfig, "-1")
	_, err = Open(Config{Conn: Options{MessageSize: 3}})
	mistake(t, "bad message size", err, ErrConfig, "MessageSize", "3")
	rt := mustOpen(t, Config{Device: first.name})
	_, err = rt.Dial(ctx, second.addr.String())
	mistake(t, "no port", err, ErrAddress, "host:port")
	_, err = rt.Dial(ctx, second.at("70000"))
	mistake(t, "bad port", err, ErrAddress, "70000")
	_, err = rt.DialOptions(ctx, second.at("1"), Options{PrivateData: make([]byte, MaxDialData+1)})
	mistake(t, "too much private data", err, ErrConfig, "25", "24")
	must.Get(rt.Listen(":0"))(t)
	_, err = rt.Dial(ctx, first.at("9"))
	var rej *RejectError
	unheard := sys.Portable && errors.Is(err, ErrUnreachable) // package net does not report that no socket is there
	if !unheard && (!errors.As(err, &rej) || !strings.Contains(err.Error(), "no listener there")) {
		t.Errorf("no listener: %v", err)
	}
	ln := must.Get(rt.Listen(":0"))(t)
	if _, err := rt.Listen(ln.Addr().String()); err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("address in use: %v", err)
	}
	_, err = rt.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})
	if !errors.As(err, &rej) || !strings.Contains(err.Error(), "raw") {
		t.Errorf("modes differ: %v", err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = rt.Dial(ctx, first.at("1"))
	mistake(t, "closed runtime", err, ErrClosed)
}

// Rule: dialing an address without a device fails, at the latest after ConnectTimeout.
func TestDialingNobody(t *testing.T) {
	rt := mustOpen(t, Config{Device: first.name, ConnectTimeout: 2 * time.Second})
	_, err := rt.Dial(testContext(t), "127.9.9.9:1")
	var refused *RejectError // the software RNIC hears that no socket has the port
	if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrConnectTimeout) && !errors.As(err, &refused) {
		t.Fatalf("dialing nobody: %v", err)
	}
}

// Rule: if this end can detect a mistake, the call fails at once, and the connection stays open.
func TestMistakesThatAreRefusedAtOnce(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{MessageSize: 4096, MaxSGE: 2}})
	ctx := testContext(t)
	readable, err := b.rt.NewRegion(4096, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	defer readable.Close()
	remote := must.Get(readable.Remote(0, 4096))(t)
	buf := must.Get(a.rt.Alloc(8192))(t)
	small, _ := buf.Slice().Sub(0, 16)
	_, err = a.Write(ctx, small, remote)
	mistake(t, "write without permission", err, ErrPermission, "REMOTE_WRITE", "REMOTE_READ")
	_, err = a.Read(ctx, buf.Slice(), remote)
	mistake(t, "read too much", err, ErrRemoteRange, "8192", "4096")
	_, err = remote.At(4090, 7)
	mistake(t, "outside the descriptor", err, ErrRange, "4090", "7")
	_, err = buf.Slice().Sub(8190, 3)
	mistake(t, "outside the buffer", err, ErrRange, "8190")
	_, err = a.SendBytes(ctx, make([]byte, 4097))
	mistake(t, "message too large", err, ErrTooLarge, "4097", "4096")
	_, err = a.Start(ctx, new(SendVOp([]Slice{small, small, small})))
	mistake(t, "too many pieces", err, reactor.ErrRequest, "3", "2")
	_, err = a.PostRecv(small)
	mistake(t, "raw call on a managed connection", err, ErrMode)
	_, err = a.rt.Register(make([]byte, 4096), allAccess)
	mistake(t, "Go heap memory", err, mem.ErrGoHeap)
	if err := buf.Release(); err != nil {
		t.Fatal(err)
	}
	_, err = a.Read(ctx, small, remote)
	mistake(t, "released memory", err, ErrReleased)
	if err := buf.Release(); err == nil {
		t.Error("second release of a buffer: no error")
	}
	var hostile Remote
	raw := must.Get(remote.MarshalBinary())(t)
	for n := range raw {
		if err := hostile.UnmarshalBinary(raw[:n]); err == nil {
			t.Fatalf("a descriptor cut to %d of %d bytes was taken", n, len(raw))
		}
	}
	if f, err := a.SendBytes(ctx, []byte("still there")); err != nil {
		t.Fatal(err)
	} else {
		done(t, f, nil)
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = a.SendBytes(ctx, nil)
	mistake(t, "closed connection", err, ErrConnClosed)
	_, err = a.RecvWait(ctx)
	mistake(t, "receiving from a closed connection", err, ErrConnClosed)
}

// Rule: if only the peer can detect a mistake, the operation and the connection fail with the
// status that the peer returns.
func TestMistakesThatThePeerRefuses(t *testing.T) {
	for what, spoil := range map[string]func(*Remote){
		"wrong key":            func(r *Remote) { r.RKey ^= 0x5a5a5a5a },
		"outside its region":   func(r *Remote) { r.Addr += 1 << 20 },
		"a permission made up": func(r *Remote) { r.Access |= verbs.AccessRemoteWrite },
	} {
		t.Run(what, func(t *testing.T) {
			a, b := connected(t, Config{})
			ctx := testContext(t)
			access := verbs.AccessLocalWrite | verbs.AccessRemoteRead
			region, err := b.rt.NewRegion(4096, access)
			if err != nil {
				t.Fatal(err)
			}
			defer region.Close()
			remote := must.Get(region.Remote(0, 64))(t)
			spoil(&remote)
			remote.Access |= verbs.AccessRemoteWrite
			buf := must.Get(a.rt.Alloc(64))(t)
			defer buf.Release()
			f := must.Get(a.Write(ctx, buf.Slice(), remote))(t)
			_, err = f.Await(ctx)
			mistake(t, what, err, verbs.StatusError(verbs.WCRemAccessErr), "WRITE", "REM_ACCESS_ERR")
			_, err = a.Write(ctx, buf.Slice(), remote)
			mistake(t, "after it", err, verbs.StatusError(verbs.WCRemAccessErr))
			if _, err := b.RecvWait(ctx); err == nil {
				t.Error("the peer's receive ended without an error")
			}
		})
	}
}

// The function stranger dials a listener with the given private data. It uses package verbs, not a
// Runtime. It returns the event that ends the attempt.
func stranger(t *testing.T, to netip.AddrPort, private []byte) (verdict verbs.CMEvent) {
	t.Helper()
	p, ctx, err := Config{Device: first.name}.openDevice()
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	pd := must.Get(ctx.AllocPD())(t)
	defer pd.Close()
	ch := must.Get(p.CreateCMChannel())(t)
	defer ch.Close()
	cq := must.Get(ctx.CreateCQ(16, nil, 0, 0))(t)
	defer cq.Close()
	id := must.Get(ch.CreateID(verbs.PSTCP, 0))(t)
	defer id.Close()
	if err := id.ResolveAddr(netip.AddrPortFrom(ctx.Device().Addr[0], 0), to, time.Second); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		ev, ok, err := ch.GetEvent()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		ev.Conn.PrivateData = append([]byte(nil), ev.Conn.PrivateData...)
		ch.Ack(ev)
		switch ev.Type {
		case verbs.CMAddrResolved:
			err = id.ResolveRoute(time.Second)
		case verbs.CMRouteResolved:
			if err = id.CreateQP(pd, &verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}); err == nil {
				err = id.Connect(&verbs.ConnParam{PrivateData: private, RetryCount: 7, RNRRetryCount: 7})
			}
		default:
			return ev
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("no verdict within 10 s for %q", private)
	return verdict
}

// Rule: the listener rejects a request with hostile private data, gives a reason, and continues to
// work.
func TestHostilePrivateDataIsRejected(t *testing.T) {
	server := mustOpen(t, Config{Device: second.name})
	ln := must.Get(server.Listen(":0"))(t)
	good := proto.EncodeHello(proto.Hello{Credits: 4, RecvSize: 4096})
	for what, private := range map[string][]byte{
		"nothing":            nil,
		"truncated":          good[:9],
		"another protocol":   []byte("GET / HTTP/1.1\r\nHost: verbena\r\n\r\nxxxxxxxx"),
		"a later version":    append([]byte("VRBN\x09"), good[5:]...),
		"authentication":     append(append(append([]byte(nil), good[:16]...), "0123456789abcdef"...), good[helloSize:]...),
		"user length beyond": append(append(append([]byte(nil), good[:6]...), 255), good[7:]...),
	} {
		ev := stranger(t, ln.Addr(), private)
		if ev.Type != verbs.CMRejected || ev.Status != verbs.RejConsumer {
			t.Errorf("%s: %v with status %d, want REJECTED by the consumer", what, ev.Type, ev.Status)
			continue
		}
		if r, bad := proto.ParseReject(ev.Conn.PrivateData); bad != nil || r.Code != proto.RejectProtocol || r.Text == "" {
			t.Errorf("%s: rejected with code %d %q, %v", what, r.Code, r.Text, bad)
		}
	}
	client := mustOpen(t, Config{Device: first.name})
	seat := must.Get(ln.AcceptAsync())(t)
	if _, err := client.Dial(testContext(t), ln.Addr().String()); err != nil {
		t.Fatalf("an honest peer after the hostile ones: %v", err)
	}
	if _, err := seat.Await(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

// Rule: if a peer breaks the frame protocol, the connection to this peer fails with a protocol
// error, and can be closed.
func TestHostileFramesEndTheConnection(t *testing.T) {
	good := func(f proto.Frame) []byte {
		var b [frameSize]byte
		f.Encode(&b)
		return b[:]
	}
	for what, payload := range map[string][]byte{
		"shorter than a header":   {1, 2, 3},
		"unknown kind":            good(proto.Frame{Kind: 9}),
		"length beyond":           good(proto.Frame{Kind: proto.Data, Length: 1000}),
		"credits out of thin air": good(proto.Frame{Kind: proto.Credit, Credits: 1}),
		"very many credits":       good(proto.Frame{Kind: proto.Credit, Credits: 1<<32 - 1}),
	} {
		t.Run(what, func(t *testing.T) {
			a, b := connected(t, Config{})
			ctx := testContext(t)
			if err := a.sh.r.Do(ctx, func() { // bypasses the managed Send
				if _, err := a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: nothing{}}, &reactor.Payload{Inline: payload}, reactor.NonBlock); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			_, err := b.RecvWait(ctx)
			mistake(t, what, err, ErrPeerProtocol)
			if err := b.Close(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

type nothing struct{}

func (nothing) Complete(SinkContext, Result, error) {}

// Rule: an operation with memory of another runtime fails at once, because the device of this
// runtime does not know the key of that memory. The connection or PacketConn stays usable.
func TestMemoryOfAnotherRuntimeIsRefused(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	all, err := b.rt.NewRegion(4096, allAccess|verbs.AccessMWBind)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	remote := must.Get(all.Remote(0, 4096))(t)
	const says = "another runtime"
	w := must.Get(a.NewWindow())(t)
	_, _, err = w.Bind(ctx, all, 0, 64, verbs.AccessRemoteRead)
	mistake(t, "binding", err, verbs.ErrInvalid, says)
	ours := bufferOf(t, a.rt, make([]byte, 64)).Slice()
	pa := mustListenPacket(t, a.rt, Options{})
	to := mustResolve(t, pa, mustListenPacket(t, b.rt, Options{}).Addr().String())
	shared := must.Get(a.rt.NewSharedRecv(1, 1))(t)
	region := must.Get(all.Slice(0, 64))(t)
	for what, theirs := range map[string]Slice{
		"a buffer": bufferOf(t, b.rt, make([]byte, 64)).Slice(), "a region": region,
		"a big buffer": bufferOf(t, b.rt, make([]byte, MaxPooled+1)).Slice(),
	} {
		theirs, _ = theirs.Sub(0, 64)
		_, err = a.Write(ctx, theirs, remote)
		mistake(t, "writing from "+what, err, verbs.ErrInvalid, says, "64 bytes")
		_, err = a.Read(ctx, theirs, remote)
		mistake(t, "reading into "+what, err, verbs.ErrInvalid, says)
		_, err = a.Start(ctx, new(SendVOp([]Slice{ours, theirs})))
		mistake(t, "sending "+what, err, verbs.ErrInvalid, says)
		_, err = pa.Send(ctx, to, theirs)
		mistake(t, "a datagram from "+what, err, verbs.ErrInvalid, says)
		_, err = shared.PostRecv(theirs)
		mistake(t, "a receive into "+what, err, verbs.ErrInvalid, says)
	}
	if a.Err() != nil || b.Err() != nil || pa.Err() != nil {
		t.Errorf("it ended something: %v, %v, %v", a.Err(), b.Err(), pa.Err())
	}
	f, err := a.Write(ctx, ours, remote)
	done(t, f, err)
}
