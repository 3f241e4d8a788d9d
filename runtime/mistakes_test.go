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

// mistake checks the error of a call: err must match kind, and the text of err must contain all strings
// of the last argument. The failure texts begin with the given description of the call.
func mistake(t *testing.T, what string, err, kind error, says ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: got the error %v, want one that matches %v", what, err, kind)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: the error %q does not contain %q", what, err, s)
		}
	}
}

// Rule: if an argument of Open, Listen or Dial is wrong, or if nothing listens at the address of Dial,
// the error names the mistake.
func TestMistakesBeforeConnecting(t *testing.T) {
	ctx := testContext(t)
	_, err := Open(Config{Device: "mlx5_0"})
	mistake(t, "Open with an unknown device", err, verbs.ErrUnknownDevice, "mlx5_0", "soft0", "soft1")
	_, err = Open(Config{Reactors: -1})
	mistake(t, "Open with -1 reactors", err, ErrConfig, "-1")
	_, err = Open(Config{Conn: Options{MessageSize: 3}})
	mistake(t, "Open with a too small MessageSize", err, ErrConfig, "MessageSize", "3")
	rt := mustOpen(t, Config{Device: first.name})
	_, err = rt.Dial(ctx, second.addr.String())
	mistake(t, "Dial without a port", err, ErrAddress, "host:port")
	_, err = rt.Dial(ctx, second.at("70000"))
	mistake(t, "Dial with port 70000", err, ErrAddress, "70000")
	_, err = rt.DialOptions(ctx, second.at("1"), Options{PrivateData: make([]byte, MaxDialData+1)})
	mistake(t, "Dial with too much private data", err, ErrConfig, "25", "24")
	must.Get(rt.Listen(":0"))(t)
	_, err = rt.Dial(ctx, first.at("9"))
	var rej *RejectError
	// The portable build uses sockets of package net. They do not report that no socket is open at the
	// peer's port.
	unheard := sys.Portable && errors.Is(err, ErrUnreachable)
	if !unheard && (!errors.As(err, &rej) || !strings.Contains(err.Error(), "no listener there")) {
		t.Errorf("Dial to a port without a listener: %v, want a RejectError with the text \"no listener there\"", err)
	}
	ln := must.Get(rt.Listen(":0"))(t)
	if _, err := rt.Listen(ln.Addr().String()); err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("Listen at an address in use: %v, want an error with the address %v", err, ln.Addr())
	}
	_, err = rt.DialOptions(ctx, ln.Addr().String(), Options{Raw: true})
	if !errors.As(err, &rej) || !strings.Contains(err.Error(), "raw") {
		t.Errorf("raw Dial to a managed listener: %v, want a RejectError with the text \"raw\"", err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = rt.Dial(ctx, first.at("1"))
	mistake(t, "Dial after Runtime.Close", err, ErrClosed)
}

// Rule: if no device has the address, Dial fails, at the latest after ConnectTimeout.
func TestDialingNobody(t *testing.T) {
	rt := mustOpen(t, Config{Device: first.name, ConnectTimeout: 2 * time.Second})
	_, err := rt.Dial(testContext(t), "127.9.9.9:1")
	var refused *RejectError // the error of Dial if the system reports that no socket is open at the port
	if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrConnectTimeout) && !errors.As(err, &refused) {
		t.Fatalf("Dial to an address without a device: %v, want ErrUnreachable, ErrConnectTimeout or a RejectError", err)
	}
}

// Rule: if this end can detect a mistake, the call fails at once, and the connection stays open.
func TestMistakesThatAreRefusedAtOnce(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{MessageSize: 4096, MaxMessage: -1, MaxSGE: 2}})
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
	mistake(t, "a WRITE with a descriptor for reading only", err, ErrPermission, "REMOTE_WRITE", "REMOTE_READ")
	_, err = a.Read(ctx, buf.Slice(), remote)
	mistake(t, "a READ of more bytes than the descriptor has", err, ErrRemoteRange, "8192", "4096")
	_, err = remote.At(4090, 7)
	mistake(t, "At outside the descriptor", err, ErrRange, "4090", "7")
	_, err = buf.Slice().Sub(8190, 3)
	mistake(t, "Sub outside the buffer", err, ErrRange, "8190")
	_, err = a.SendBytes(ctx, make([]byte, 4097))
	mistake(t, "a message larger than MessageSize", err, ErrTooLarge, "4097", "4096")
	_, err = a.Start(ctx, new(SendVOp([]Slice{small, small, small})))
	mistake(t, "a SEND of more slices than MaxSGE", err, reactor.ErrRequest, "3", "2")
	_, err = a.PostRecv(small)
	mistake(t, "PostRecv on a managed connection", err, ErrMode)
	_, err = a.rt.Register(make([]byte, 4096), allAccess)
	mistake(t, "Register of Go heap memory", err, mem.ErrGoHeap)
	if err := buf.Release(); err != nil {
		t.Fatal(err)
	}
	_, err = a.Read(ctx, small, remote)
	mistake(t, "a READ into released memory", err, ErrReleased)
	if err := buf.Release(); err == nil {
		t.Error("the second Release of a buffer returned no error, want one")
	}
	var hostile Remote
	raw := must.Get(remote.MarshalBinary())(t)
	for n := range raw {
		if err := hostile.UnmarshalBinary(raw[:n]); err == nil {
			t.Fatalf("UnmarshalBinary accepted %d of the %d bytes of a descriptor, want an error", n, len(raw))
		}
	}
	if f, err := a.SendBytes(ctx, []byte("still there")); err != nil {
		t.Fatalf("SendBytes after the refused calls: %v, want no error", err)
	} else {
		done(t, f, nil)
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = a.SendBytes(ctx, nil)
	mistake(t, "SendBytes after Close", err, ErrConnClosed)
	_, err = a.RecvWait(ctx)
	mistake(t, "RecvWait after Close", err, ErrConnClosed)
}

// Rule: if only the peer's device can detect a mistake, the operation and the connection fail with the
// status that the peer's device returns.
func TestMistakesThatThePeerRefuses(t *testing.T) {
	const readable, writable = verbs.AccessLocalWrite | verbs.AccessRemoteRead, verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	for what, c := range map[string]struct {
		access verbs.AccessFlags // of the region
		spoil  func(*Remote)
	}{
		"wrong key":                              {writable, func(r *Remote) { r.RKey ^= 0x5a5a5a5a }},
		"address outside the region":             {writable, func(r *Remote) { r.Addr += 1 << 20 }},
		"access that the region does not permit": {readable, func(r *Remote) { r.Access |= verbs.AccessRemoteWrite }},
	} {
		t.Run(what, func(t *testing.T) {
			a, b := connected(t, Config{})
			ctx := testContext(t)
			region := must.Get(b.rt.NewRegion(4096, c.access))(t)
			defer region.Close()
			remote := must.Get(region.Remote(0, 64))(t)
			c.spoil(&remote)
			buf := must.Get(a.rt.Alloc(64))(t)
			defer buf.Release()
			f := must.Get(a.Write(ctx, buf.Slice(), remote))(t)
			_, err := f.Await(ctx)
			mistake(t, what, err, verbs.StatusError(verbs.WCRemAccessErr), "WRITE", "REM_ACCESS_ERR")
			_, err = a.Write(ctx, buf.Slice(), remote)
			mistake(t, "a WRITE after the failure", err, verbs.StatusError(verbs.WCRemAccessErr))
			if _, err := b.RecvWait(ctx); err == nil {
				t.Error("RecvWait at the peer returned no error after the failure, want one")
			}
		})
	}
}

// stranger dials a listener with the given private data. It uses package verbs, not a Runtime. It
// returns the event that ends the attempt to connect.
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
	t.Fatalf("the attempt to connect with the private data %q has not ended within 10 s", private)
	return verdict
}

// Rule: if a request has private data that breaks the protocol, the listener rejects the request with
// a reason, and goes on accepting other requests.
func TestHostilePrivateDataIsRejected(t *testing.T) {
	server := mustOpen(t, Config{Device: second.name})
	ln := must.Get(server.Listen(":0"))(t)
	good := proto.EncodeHello(proto.Hello{Credits: 4, Most: 4, RecvSize: 4096})
	for what, private := range map[string][]byte{
		"no private data":                    nil,
		"a truncated hello":                  good[:9],
		"data of another protocol":           []byte("GET / HTTP/1.1\r\nHost: verbena\r\n\r\nxxxxxxxx"),
		"a hello of a later version":         append([]byte("VRBN\x09"), good[5:]...),
		"a hello of version 3":               append([]byte("VRBN\x03"), good[5:]...),
		"a hello that requires a feature":    append(append(append([]byte(nil), good[:16]...), "\x01\x00\x00\x00\x01\x00\x00\x00"...), good[24:]...),
		"a hello with too large user length": append(append(append([]byte(nil), good[:6]...), 255), good[7:]...),
	} {
		ev := stranger(t, ln.Addr(), private)
		if ev.Type != verbs.CMRejected || ev.Status != verbs.RejConsumer {
			t.Errorf("dialing with %s ended with %v and status %d, want REJECTED and status %d", what, ev.Type, ev.Status, verbs.RejConsumer)
			continue
		}
		if r, bad := proto.ParseReject(ev.Conn.PrivateData); bad != nil || r.Code != proto.RejectProtocol || r.Text == "" {
			t.Errorf("dialing with %s: the rejection has code %d and text %q (%v), want code %d and a text", what, r.Code, r.Text, bad, proto.RejectProtocol)
		}
	}
	client := mustOpen(t, Config{Device: first.name})
	seat := must.Get(ln.AcceptAsync())(t)
	if _, err := client.Dial(testContext(t), ln.Addr().String()); err != nil {
		t.Fatalf("Dial after the rejected requests: %v, want no error", err)
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
		"two messages with one credit":   append(good(proto.Frame{Kind: proto.Data, Length: 1}), 1),
		"message shorter than a header":  {1, 2, 3},
		"unknown kind":                   good(proto.Frame{Kind: 9}),
		"length beyond the message":      good(proto.Frame{Kind: proto.Data, Length: 1000}),
		"more credits than announced":    good(proto.Frame{Kind: proto.Credit, Credits: poolWindow}),
		"a Return of credits it has not": good(proto.Frame{Kind: proto.Return, Number: 1}),
		"a large message of no bytes":    sourceFrame(0, 1),
		"a message beyond MaxMessage":    sourceFrame(DefaultMaxMessage+1, 1),
		"a large message without source": good(proto.Frame{Kind: proto.Large}),
		"an answer without a question":   good(proto.Frame{Kind: proto.Fetched}),
		"a First frame on RoCE":          good(proto.Frame{Kind: proto.First}),
		"return of 2^32-1 credits":       good(proto.Frame{Kind: proto.Credit, Credits: 1<<32 - 1}),
	} {
		t.Run(what, func(t *testing.T) {
			a, b := connected(t, Config{})
			ctx := testContext(t)
			// Submit the SEND directly to a's queue, because Conn.Send would write a valid header, and wait for
			// a credit.
			held(t, a, func() {
				for range 2 {
					if _, err := a.q.Submit(context.Background(), &reactor.Send{Opcode: verbs.WRSend, Sink: nothing{}}, &reactor.Payload{Inline: payload}, reactor.NonBlock); err != nil {
						t.Errorf("submitting the SEND: %v", err)
					}
				}
			})
			m, err := b.RecvWait(ctx)
			if err == nil { // the first of two messages
				_, err = b.RecvWait(ctx)
				release(t, m)
			}
			mistake(t, "RecvWait after the invalid message ("+what+")", err, ErrPeerProtocol)
			if err := b.Close(ctx); err != nil {
				t.Fatalf("Close after the protocol error: %v, want no error", err)
			}
		})
	}
}

// sourceFrame returns a Large frame for n bytes of memory with the given key.
func sourceFrame(n, key uint32) []byte {
	var b [frameSize + proto.SourceSize]byte
	proto.Frame{Kind: proto.Large, Length: proto.SourceSize}.Encode((*[frameSize]byte)(b[:]))
	proto.Source{Addr: 4096, Length: n, Key: key}.Encode((*[proto.SourceSize]byte)(b[frameSize:]))
	return b[:]
}

// nothing is a sink that ignores the result.
type nothing struct{}

func (nothing) Complete(SinkContext, Result, error) {}

// Rule: if an operation uses local memory of another runtime, the call fails at once, and the
// connection or PacketConn stays usable. (The device of the connection may not know the key of this
// memory, or may use the same key for other memory.)
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
	mistake(t, "binding a window to another runtime's region", err, verbs.ErrInvalid, says)
	ours := bufferOf(t, a.rt, make([]byte, 64)).Slice()
	pa := mustListenPacket(t, a.rt, Options{})
	to := mustResolve(t, pa, mustListenPacket(t, b.rt, Options{}).Addr().String())
	shared := must.Get(a.rt.NewSharedRecv(1, 1))(t)
	region := must.Get(all.Slice(0, 64))(t)
	for what, theirs := range map[string]Slice{
		"another runtime's buffer": bufferOf(t, b.rt, make([]byte, 64)).Slice(), "another runtime's region": region,
		"another runtime's large buffer": bufferOf(t, b.rt, make([]byte, MaxPooled+1)).Slice(),
	} {
		theirs, _ = theirs.Sub(0, 64)
		_, err = a.Write(ctx, theirs, remote)
		mistake(t, "a WRITE from "+what, err, verbs.ErrInvalid, says, "64 bytes")
		_, err = a.Read(ctx, theirs, remote)
		mistake(t, "a READ into "+what, err, verbs.ErrInvalid, says)
		_, err = a.Start(ctx, new(SendVOp([]Slice{ours, theirs})))
		mistake(t, "a SEND from "+what, err, verbs.ErrInvalid, says)
		_, err = pa.Send(ctx, to, theirs)
		mistake(t, "a datagram from "+what, err, verbs.ErrInvalid, says)
		_, err = shared.PostRecv(theirs)
		mistake(t, "a shared receive into "+what, err, verbs.ErrInvalid, says)
	}
	if a.Err() != nil || b.Err() != nil || pa.Err() != nil {
		t.Errorf("after the refused operations the two ends have the errors %v and %v and the PacketConn %v, want none", a.Err(), b.Err(), pa.Err())
	}
	f, err := a.Write(ctx, ours, remote)
	done(t, f, err)
}
