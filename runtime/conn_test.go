package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	t.Cleanup(cancel)
	return ctx
}

func mustOpen(t testing.TB, cfg Config) *Runtime {
	t.Helper()
	rt := must.Get(Open(cfg))(t)
	t.Cleanup(func() {
		if err := rt.Close(testContext(t)); err != nil {
			t.Errorf("closing the runtime: %v", err)
		}
	})
	return rt
}

func done(t testing.TB, f Future, err error) Result {
	t.Helper()
	if err != nil {
		t.Fatalf("starting the operation: %v", err)
	}
	r := must.Get(f.Await(testContext(t)))(t)
	return r
}

// Rule: if the receiver releases each message, the sender can send more messages than it has credits,
// because each release returns a credit. The messages arrive complete and in order.
func TestMessagesFlowPastTheCredits(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{RecvCredits: 5, MessageSize: 1000}})
	ctx := testContext(t)
	const n = 500
	errs := make(chan error, 1)
	go func() {
		for i := range n {
			p := bytes.Repeat([]byte{byte(i)}, i*2%1001)
			if _, err := a.SendBytes(ctx, p); err != nil {
				errs <- fmt.Errorf("sending message %d: %w", i, err)
				return
			}
		}
		errs <- nil
	}()
	for i := range n {
		m, err := b.RecvWait(ctx)
		if err != nil {
			t.Fatalf("receiving message %d: %v; the cause of the sending end: %v; the sending goroutine: %v", i, err, a.Err(), <-errs)
		}
		if len(m.Data) != i*2%1001 || len(m.Data) > 0 && (m.Data[0] != byte(i) || m.Data[len(m.Data)-1] != byte(i)) {
			t.Fatalf("message %d arrived with %d bytes, want %d bytes of value %d", i, len(m.Data), i*2%1001, byte(i))
		}
		if err := m.Release(); err != nil {
			t.Fatal(err)
		}
		if err := m.Release(); !errors.Is(err, ErrMessage) {
			t.Fatalf("the second Release of message %d: %v, want ErrMessage", i, err)
		}
	}
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
}

// Rule: a WRITE, READ or atomic accesses the remote memory that its descriptor names.
func TestOneSidedOperations(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	all := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	region := must.Get(b.rt.NewRegion(1<<20, all))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, region.Len()))(t)
	buf := must.Get(a.rt.Alloc(4096))(t)
	defer buf.Release()
	copy(buf.Bytes(), "written into remote memory")
	f, err := a.Write(ctx, buf.Slice(), remote)
	done(t, f, err)
	if !bytes.HasPrefix(region.Bytes(), []byte("written into remote memory")) {
		t.Fatalf("after the WRITE the region begins with %q, want \"written into remote memory\"", region.Bytes()[:26])
	}
	f, err = a.Start(ctx, new(WriteOp(buf.Slice(), remote).Imm(77)))
	done(t, f, err)
	m, err := b.RecvWait(ctx)
	if err != nil || !m.HasImm || m.Imm != 77 || m.Written != 4096 {
		t.Fatalf("the WRITE with immediate arrived as %+v, %v; want immediate 77 and 4096 bytes written", m, err)
	}
	m.Release()
	word := must.Get(remote.At(64, 8))(t)
	f, err = a.Start(ctx, new(FetchAndAddOp(word, 3)))
	old := done(t, f, err).Value
	f, err = a.Start(ctx, new(CompareAndSwapOp(word, old+3, 9)))
	if r := done(t, f, err); r.Value != old+3 {
		t.Fatalf("the compare and swap returned %d, want %d", r.Value, old+3)
	}
	mem := a.At(ctx, remote)
	src := make([]byte, 1<<20)
	for i := range src {
		src[i] = byte(i * 31)
	}
	if n, err := mem.WriteAt(src, 0); n != len(src) || err != nil {
		t.Fatalf("WriteAt returned %d, %v; want %d and no error", n, err, len(src))
	}
	got, err := io.ReadAll(io.NewSectionReader(mem, 0, mem.Size()))
	if err != nil || !bytes.Equal(got, src) {
		t.Fatalf("reading the region with ReadAt returned %d bytes and the error %v (equal to the written bytes: %t), want the %d written bytes and no error", len(got), err, bytes.Equal(got, src), len(src))
	}
}

// Rule: if the peer sends messages and then closes the connection, RecvWait returns all messages
// before it returns ErrPeerClosed.
func TestPeerCloseComesAfterTheMessages(t *testing.T) {
	a, b := connected(t, Config{})
	ctx := testContext(t)
	for i := range 10 {
		if _, err := a.SendBytes(ctx, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		m, err := b.RecvWait(ctx)
		if err != nil || m.Data[0] != byte(i) {
			t.Fatalf("receiving message %d after the peer has closed: %v, %v; want [%d]", i, m.Data, err, byte(i))
		}
		m.Release()
	}
	if _, err := b.RecvWait(ctx); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("RecvWait after the last message: %v, want ErrPeerClosed", err)
	}
	if _, err := b.SendBytes(ctx, []byte("x")); !errors.Is(err, ErrPeerClosed) {
		t.Fatalf("SendBytes after the peer has closed: %v, want ErrPeerClosed", err)
	}
}

// smallPorts returns a new software provider with two devices, whose ports limit messages to
// maxMessage bytes. It also returns the fabric (the network between the devices), so that the test can
// delay or cut the links.
func smallPorts(t testing.TB, maxMessage uint32) (*soft.Provider, *fabric.Fabric) {
	t.Helper()
	notOnDevice(t, "the test needs ports and links of the software RNIC")
	f := fabric.New(fabric.Config{})
	p := must.Get(soft.New(soft.Config{Fabric: f, Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Limits: soft.Limits{MaxMsgSize: maxMessage}},
		{Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2"), Limits: soft.Limits{MaxMsgSize: maxMessage}},
	}}))(t)
	return p, f
}

// Rule: if a transfer is larger than the port's largest message, it is split into several work
// requests, and has one future. The immediate data of a split WRITE arrives after the last byte.
func TestLargeTransfersAreSplit(t *testing.T) {
	p, _ := smallPorts(t, 1000)
	a, b := connected(t, Config{Provider: p, Conn: Options{MessageSize: 512}})
	ctx := testContext(t)
	const n = 10_500
	target := must.Get(b.rt.NewRegion(n, allAccess))(t)
	defer target.Close()
	source := must.Get(a.rt.NewRegion(n, allAccess))(t)
	defer source.Close()
	for i := range source.Bytes() {
		source.Bytes()[i] = byte(i * 13)
	}
	remote := must.Get(target.Remote(0, n))(t)
	local := must.Get(source.Slice(0, n))(t)
	before := a.rt.Stats().WorkRequests
	f, err := a.Start(ctx, new(WriteOp(local, remote).Imm(5)))
	if r := done(t, f, err); r.Bytes != n {
		t.Fatalf("the result of the split WRITE has %d bytes, want %d", r.Bytes, n)
	}
	if posted := a.rt.Stats().WorkRequests - before; posted != 11 {
		t.Fatalf("%d work requests were posted for %d bytes in messages of at most 1000 bytes, want 11", posted, n)
	}
	m, err := b.RecvWait(ctx)
	if err != nil || m.Imm != 5 || string(target.Bytes()[:n]) != string(source.Bytes()[:n]) {
		t.Fatalf("the split WRITE arrived with immediate %d, error %v, data equal: %t; want immediate 5 and equal data",
			m.Imm, err, string(target.Bytes()[:n]) == string(source.Bytes()[:n]))
	}
	m.Release()
	clear(source.Bytes())
	f, err = a.Read(ctx, local, remote)
	if r := done(t, f, err); r.Bytes != n || string(target.Bytes()[:n]) != string(source.Bytes()[:n]) {
		t.Fatalf("the split READ returned %d bytes, data equal: %t; want %d bytes of equal data",
			r.Bytes, string(target.Bytes()[:n]) == string(source.Bytes()[:n]), n)
	}
}

// Rule: if a connection is raw, the user posts the receives, and messages take the receives in the
// order of posting. Messages arrive unchanged, without a header.
func TestRawConnection(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{Raw: true}})
	ctx := testContext(t)
	buf := must.Get(b.rt.Alloc(4096))(t)
	defer buf.Release()
	one, _ := buf.Slice().Sub(0, 100)
	two, _ := buf.Slice().Sub(100, 100)
	r1 := must.Get(b.PostRecv(one))(t)
	r2 := must.Get(b.PostRecv(two))(t)
	for _, s := range []string{"first", "second"} {
		f, err := a.SendBytes(ctx, []byte(s))
		done(t, f, err)
	}
	if r := done(t, r1, nil); string(one.Bytes()[:r.Bytes]) != "first" {
		t.Fatalf("the first receive has %q, want \"first\"", one.Bytes()[:r.Bytes])
	}
	if r := done(t, r2, nil); string(two.Bytes()[:r.Bytes]) != "second" {
		t.Fatalf("the second receive has %q, want \"second\"", two.Bytes()[:r.Bytes])
	}
	if _, err := b.Recv().Await(ctx); !errors.Is(err, ErrMode) {
		t.Fatalf("Recv on a raw connection: %v, want ErrMode", err)
	}
}

// Rule: a runtime distributes its connections over all its reactors, and the connections of every
// reactor work.
func TestManyReactors(t *testing.T) {
	server := mustOpen(t, Config{Device: second.name, Reactors: 3})
	client := mustOpen(t, Config{Device: first.name, Reactors: 2})
	ctx := testContext(t)
	ln := must.Get(server.Listen(":0"))(t)
	var conns []*Conn
	for i := range 6 {
		seat := must.Get(ln.AcceptAsync())(t)
		c, err := client.Dial(ctx, ln.Addr().String())
		if err != nil {
			t.Fatalf("dialing connection %d: %v", i, err)
		}
		s := must.Get(seat.Await(ctx))(t)
		conns = append(conns, c, s)
	}
	for i := 0; i < len(conns); i += 2 {
		if _, err := conns[i].SendBytes(ctx, []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		m, err := conns[i+1].RecvWait(ctx)
		if err != nil || m.Data[0] != byte(i) {
			t.Fatalf("receiving the message on connection %d: %v, %v; want [%d]", i/2, m.Data, err, byte(i))
		}
		m.Release()
	}
	used := map[*shard]bool{}
	for _, c := range conns {
		used[c.sh] = true
	}
	if len(used) != 5 {
		t.Fatalf("%d reactors of the two runtimes have connections, want all 5", len(used))
	}
}

// Rule: if the peer is silent, Close still returns soon after the deadline of its context, and the
// outstanding operations end.
func TestCloseKeepsItsDeadlineWhenThePeerIsSilent(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p})
	link.SetAll(fabric.Link{Down: true})
	defer link.Heal()
	f := must.Get(a.SendBytes(testContext(t), []byte("into the void")))(t)
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := a.Close(short); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Fatalf("Close took %v with a deadline of 50 ms, want at most 5s", d)
	}
	if _, err := f.Await(testContext(t)); err == nil {
		t.Fatal("a SEND over a cut link succeeded, want an error")
	}
	b.Abort()
	<-b.closed
}

// Rule: if the peer has vanished, the first outstanding operation fails when the device's retries are
// used up. Its error becomes the connection's cause.
func TestVanishedPeerEndsOperations(t *testing.T) {
	p, link := smallPorts(t, 1<<20)
	a, b := connected(t, Config{Provider: p})
	link.SetAll(fabric.Link{Down: true})
	f := must.Get(a.SendBytes(testContext(t), []byte("x")))(t)
	if _, err := f.Await(testContext(t)); !errors.Is(err, verbs.StatusError(verbs.WCRetryExcErr)) {
		t.Fatalf("sending to a vanished peer: %v, want RETRY_EXC_ERR", err)
	}
	if _, err := a.RecvWait(testContext(t)); !errors.Is(err, verbs.StatusError(verbs.WCRetryExcErr)) {
		t.Fatalf("receiving from a vanished peer: %v, want RETRY_EXC_ERR, the connection's cause", err)
	}
	link.Heal()
	link.SetAll(fabric.Link{})
	b.Abort()
	<-b.closed
}

// Rule: if RecvWait is called with a context that has ended, no message is lost.
func TestCancelledReceiveLosesNoMessage(t *testing.T) {
	a, b := connected(t, Config{})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for i := range 100 {
		if _, err := b.RecvWait(ended); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("RecvWait with an ended context: %v, want %v", err, context.Canceled)
		} else if err == nil {
			t.Fatalf("RecvWait returned message %d before the message was sent", i)
		}
		if _, err := a.SendBytes(testContext(t), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		m, err := b.RecvWait(testContext(t))
		if err != nil || m.Data[0] != byte(i) {
			t.Fatalf("receiving message %d: %v, %v; want [%d]", i, m.Data, err, byte(i))
		}
		m.Release()
	}
}

// Rule: if a handler of Runtime.Handle blocks, other handlers run meanwhile.
func TestHandlersMayBlock(t *testing.T) {
	a, _ := connected(t, Config{Handlers: 2})
	ctx := testContext(t)
	gate, second := make(chan struct{}), make(chan struct{})
	var ran atomic.Int32
	for _, fn := range []func(){func() { <-gate }, func() { close(second) }} {
		f := must.Get(a.SendBytes(ctx, []byte("x")))(t)
		a.rt.Handle(f, func(r Result, err error) {
			if err != nil {
				t.Errorf("the SEND failed: %v", err)
			}
			fn()
			if ran.Add(1) == 2 {
				close(gate)
			}
		})
	}
	<-second // the second handler runs although the first handler blocks
	gate <- struct{}{}
}

// Rule: if the device delivers no more completions, a failed connection ends its operations itself,
// even if the user does not call Close.
func TestDeadDeviceEndsOperations(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{Raw: true}})
	ctx := testContext(t)
	f, err := a.SendBytes(ctx, []byte("no receive is posted")) // stays outstanding
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	if err := a.sh.r.Do(ctx, func() {
		delete(a.sh.targets, a.id)
		a.id = unflushed{a.id}
		a.sh.targets[a.id] = a
		a.fail(gone)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Await(ctx); !errors.Is(err, gone) {
		t.Fatalf("the operation ended with %v, want the connection's cause, %v", err, gone)
	}
	b.Abort()
	<-b.closed
}

// unflushed is an identifier whose Disconnect does nothing, as if its device did not flush requests.
type unflushed struct{ queuePairID }

func (unflushed) Disconnect() error { return nil }
