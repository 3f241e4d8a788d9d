package runtime

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: if an option has a value that no device accepts, Open, Dial and Listen return ErrConfig of
// this package, not of package reactor. The error names the option.
func TestBadOptionsAreOurs(t *testing.T) {
	rt := mustOpen(t, Config{Device: first.name})
	for option, o := range map[string]Options{
		"SendDepth":   {SendDepth: 1 << 20},
		"RecvCredits": {RecvCredits: maxCredits + 1},
		"MaxSGE":      {MaxSGE: 65},
		"Inline":      {Inline: 1 << 20},
		"Recorder":    {Recorder: maxRecorder + 1},
		"PrivateData": {PrivateData: make([]byte, MaxAcceptData+1)},
	} {
		_, err := rt.DialOptions(testContext(t), first.at("1"), o)
		mistake(t, "dialing with too large "+option, err, ErrConfig, option)
		_, err = rt.ListenOptions(":0", o)
		mistake(t, "listening with too large "+option, err, ErrConfig, option)
		if option == "PrivateData" {
			continue // the limits of Dial and Listen differ, so Open does not check PrivateData
		}
		_, err = Open(Config{Device: first.name, Conn: o})
		mistake(t, "opening a runtime with too large "+option, err, ErrConfig, option)
	}
	_, err := Open(Config{Device: first.name, CQEntries: 1 << 30})
	mistake(t, "opening a runtime with too large CQEntries", err, ErrConfig, "CQEntries")
	_, err = rt.DialOptions(testContext(t), first.at("1"), Options{MaxSGE: 40}) // the device accepts at most 32
	mistake(t, "dialing with a larger MaxSGE than the device accepts", err, ErrConfig, "40", "32")
}

// Rule: if the options have their smallest values, a connection carries messages.
func TestLeastOptions(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{SendDepth: 1, RecvCredits: 1, MessageSize: minMessageSize, MaxSGE: 1, Backlog: 1}})
	for range 3 {
		echo(t, a, b)
	}
}

// Rule: if the two ports have different message limits, a message of MaxMessage bytes and its header
// fit both ports.
func TestMessagesFitThePort(t *testing.T) {
	notOnDevice(t, "the test needs a device with a small message limit")
	p, err := soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Limits: soft.Limits{MaxMsgSize: 1000}},
		{Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a, b := connected(t, Config{Provider: p}) // Options.MessageSize is not set, so it is reduced to fit the port
	if a.MaxMessage() != 1000-frameSize || b.MaxMessage() != 1000-frameSize {
		t.Fatalf("MaxMessage of the two ends is %d and %d, want %d", a.MaxMessage(), b.MaxMessage(), 1000-frameSize)
	}
	_, err = a.SendBytes(testContext(t), make([]byte, 1000-frameSize+1))
	mistake(t, "sending one byte more than MaxMessage", err, ErrTooLarge, "985", "984")
	ms := sendAndTake(t, a, b, 1)
	release(t, ms...)
	f, err := a.SendBytes(testContext(t), make([]byte, a.MaxMessage()))
	done(t, f, err)
	m, err := b.RecvWait(testContext(t))
	if err != nil || len(m.Data) != a.MaxMessage() {
		t.Fatalf("a message of MaxMessage bytes arrived with %d bytes, %v; want %d", len(m.Data), err, a.MaxMessage())
	}
	release(t, m)
	_, err = a.rt.DialOptions(testContext(t), second.at("1"), Options{MessageSize: 1000})
	mistake(t, "dialing with a MessageSize that exceeds the port", err, ErrConfig, "Options.MessageSize", "1000", "soft0")
}

// Rule: the receive buffer of a message of default size, with its header, fills a block of the buffer
// pool exactly.
func TestDefaultMessageFillsItsBlock(t *testing.T) {
	if n := DefaultMessageSize + frameSize; classOf(n) == classOf(n+1) {
		t.Errorf("a default receive buffer of %d bytes does not fill its block: one more byte would fit", n)
	}
}

// Rule: if the last slices of a split WRITE are empty, the peer still gets the immediate data.
func TestImmediateOfASplitWriteIsNotLost(t *testing.T) {
	p, _ := smallPorts(t, 1000)
	a, b := connected(t, Config{Provider: p})
	ctx := testContext(t)
	region := must.Get(b.rt.NewRegion(4096, allAccess))(t)
	defer region.Close()
	remote := must.Get(region.Remote(0, 4096))(t)
	src := must.Get(a.rt.Alloc(3000))(t)
	defer src.Release()
	f, err := a.Start(ctx, new(WriteVOp([]Slice{src.Slice(), {}}, remote).Imm(7)))
	done(t, f, err)
	m, err := b.RecvWait(ctx)
	if err != nil || !m.HasImm || m.Imm != 7 {
		t.Fatalf("the split WRITE arrived as %+v, %v; want immediate 7", m, err)
	}
	release(t, m)
}

// Rule: the total size of a raw send, and the number of elements of both, are checked; a refused operation has no lease.
func TestRawSizesAreChecked(t *testing.T) {
	p, _ := smallPorts(t, 1000)
	a, b := connected(t, Config{Provider: p, Conn: Options{Raw: true}})
	for c, check := range map[*Conn]func([]Slice){
		a: func(s []Slice) {
			_, err := a.Start(testContext(t), new(SendVOp(s)))
			mistake(t, "a send of 5 GB", err, ErrTooLarge, "5242880000", "1000")
		},
		b: func(s []Slice) {
			_, err := b.PostRecv(s...)
			mistake(t, "a receive of 5,000 elements", err, verbs.ErrInvalid, "5000 elements")
		},
	} {
		buf := must.Get(c.rt.Alloc(1 << 20))(t)
		check(slices.Repeat([]Slice{buf.Slice()}, 5000)) // the total length needs more than 32 bits
		if err := buf.Release(); err != nil {            // the refused operation has no lease on buf
			t.Errorf("releasing the buffer of the refused request: %v", err)
		}
	}
}

// Rule: if a device permits fewer outstanding READs than the runtime's default, the runtime uses the
// device's limit.
func TestReadDepthIsTheDevices(t *testing.T) {
	notOnDevice(t, "the test needs devices with small limits")
	p := must.Get(soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Limits: soft.Limits{MaxRdAtomic: 4}},
		{Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2"), Limits: soft.Limits{MaxRdAtomic: 3}},
	}}))(t)
	a, b := connected(t, Config{Provider: p})
	if at, to := a.rt.depth(a.opts), b.rt.depth(b.opts); at != 4 || to != 3 {
		t.Errorf("the connections use %d and %d outstanding READs, want 4 and 3", at, to)
	}
	if at := a.rt.depth(Options{ReadDepth: 2}); at != 2 {
		t.Errorf("with Options.ReadDepth 2 a connection uses %d outstanding READs, want 2", at)
	}
}

// Rule: if an option given to Listen is zero, the listener's connections use the runtime's value. (In
// this test the option is PrivateData.) If an option is -1, which Listen turns into 0, the 0 is not
// replaced by the runtime's value. (In this test the option is Inline.)
func TestOptionsAreInheritedOnce(t *testing.T) {
	server := mustOpen(t, Config{Device: second.name, Conn: Options{PrivateData: []byte("hi")}})
	client := mustOpen(t, Config{Device: first.name, Conn: Options{PrivateData: []byte("ho")}})
	ln := must.Get(server.ListenOptions(":0", Options{Inline: -1}))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	c := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	s := must.Get(seat.Await(testContext(t)))(t)
	if string(c.PrivateData()) != "hi" || string(s.PrivateData()) != "ho" {
		t.Errorf("the private data of the runtimes arrived as %q and %q, want \"hi\" and \"ho\"", c.PrivateData(), s.PrivateData())
	}
	if s.opts.Inline != 0 || s.q.Inline() > frameSize+proto.SourceSize {
		t.Errorf("after Listen with Inline -1 the option is %d and the queue takes %d bytes inline, want 0 and at most %d", s.opts.Inline, s.q.Inline(), frameSize+proto.SourceSize)
	}
	f, err := s.SendBytes(testContext(t), nil)
	done(t, f, err)
	m, err := c.RecvWait(testContext(t))
	if err != nil || len(m.Data) != 0 {
		t.Fatalf("an empty message arrived as %q, %v; want no bytes and no error", m.Data, err)
	}
	release(t, m)
}

// Rule: if memory was allocated by this package, Register refuses to register it again.
func TestOwnMemoryIsNotRegisteredAgain(t *testing.T) {
	rt := mustOpen(t, Config{})
	region := must.Get(rt.NewRegion(1<<16, allAccess))(t)
	buf := must.Get(rt.Alloc(100))(t)
	defer buf.Release()
	for what, b := range map[string][]byte{"region": region.Bytes(), "part of a region": region.Bytes()[100:200], "buffer": buf.Bytes()} {
		_, err := rt.Register(b, allAccess)
		mistake(t, "registering a "+what, err, ErrOwnMemory, "bytes at 0x")
	}
	if err := region.Close(); err != nil {
		t.Errorf("closing the region: %v", err)
	}
}
