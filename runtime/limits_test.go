package runtime

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// Rule: an option value that no device accepts makes Open, Dial and Listen return this package's
// ErrConfig, with the name of the option.
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
		mistake(t, "dialing", err, ErrConfig, option)
		_, err = rt.ListenOptions(":0", o)
		mistake(t, "listening", err, ErrConfig, option)
		if option == "PrivateData" {
			continue // the limits of Dial and Listen differ, so Open does not check PrivateData
		}
		_, err = Open(Config{Device: first.name, Conn: o})
		mistake(t, "opening", err, ErrConfig, option)
	}
	_, err := Open(Config{Device: first.name, CQEntries: 1 << 30})
	mistake(t, "opening", err, ErrConfig, "CQEntries")
	_, err = rt.DialOptions(testContext(t), first.at("1"), Options{MaxSGE: 40}) // soft devices take 32
	mistake(t, "more than the device takes", err, ErrConfig, "40", "32")
}

// Rule: the least values of the options are valid, and a connection with them carries messages.
func TestLeastOptions(t *testing.T) {
	a, b := connected(t, Config{Conn: Options{SendDepth: 1, RecvCredits: 1, MessageSize: minMessageSize, MaxSGE: 1, Backlog: 1}})
	for range 3 {
		echo(t, a, b)
	}
}

// Rule: a message of MaxMessage bytes and its header fit the ports of both ends.
func TestMessagesFitThePort(t *testing.T) {
	notOnDevice(t, "its ports are made for the test")
	p, err := soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Limits: soft.Limits{MaxMsgSize: 1000}},
		{Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a, b := connected(t, Config{Provider: p}) // the default message size is reduced to fit the port
	if a.MaxMessage() != 1000-frameSize || b.MaxMessage() != 1000-frameSize {
		t.Fatalf("messages of %d and %d bytes, want %d", a.MaxMessage(), b.MaxMessage(), 1000-frameSize)
	}
	_, err = a.SendBytes(testContext(t), make([]byte, 1000-frameSize+1))
	mistake(t, "a byte too much", err, ErrTooLarge, "985", "984")
	ms := sendAndTake(t, a, b, 1)
	release(t, ms...)
	f, err := a.SendBytes(testContext(t), make([]byte, a.MaxMessage()))
	done(t, f, err)
	m, err := b.RecvWait(testContext(t))
	if err != nil || len(m.Data) != a.MaxMessage() {
		t.Fatalf("the largest message arrived with %d bytes, %v", len(m.Data), err)
	}
	release(t, m)
	_, err = a.rt.DialOptions(testContext(t), second.at("1"), Options{MessageSize: 1000})
	mistake(t, "more than the port carries", err, ErrConfig, "Options.MessageSize", "1000", "soft0")
}

// Rule: a message of default size and its header fill a block of the buffer pool exactly.
func TestDefaultMessageFillsItsBlock(t *testing.T) {
	if n := DefaultMessageSize + frameSize; classOf(n) == classOf(n+1) {
		t.Errorf("%d bytes for a default receive leave room in their block", n)
	}
}

// Rule: the peer gets the immediate data of a split WRITE, even if the last slices are empty.
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
		t.Fatalf("immediate: %+v, %v", m, err)
	}
	release(t, m)
}

// Rule: the total size of a raw send or receive is checked before its slices are converted to
// scatter-gather elements.
func TestRawSizesAreChecked(t *testing.T) {
	p, _ := smallPorts(t, 1000)
	a, b := connected(t, Config{Provider: p, Conn: Options{Raw: true}})
	for c, post := range map[*Conn]func([]Slice) error{
		a: func(s []Slice) error { _, err := a.Start(testContext(t), new(SendVOp(s))); return err },
		b: func(s []Slice) error { _, err := b.PostRecv(s...); return err },
	} {
		buf := must.Get(c.rt.Alloc(1 << 20))(t)
		huge := slices.Repeat([]Slice{buf.Slice()}, 5000) // the total length needs more than 32 bits
		mistake(t, "5 GB", post(huge), ErrTooLarge, "5242880000", "1000")
		if err := buf.Release(); err != nil { // the refused operation has no lease on buf
			t.Error(err)
		}
	}
}

// Rule: the number of concurrent READs stays within the device's limit.
func TestReadDepthIsTheDevices(t *testing.T) {
	notOnDevice(t, "its limits are made for the test")
	p := must.Get(soft.New(soft.Config{Fabric: fabric.New(fabric.Config{}), Devices: []soft.DeviceConfig{
		{Name: "soft0", Addr: netip.MustParseAddr("127.0.0.1"), Limits: soft.Limits{MaxRdAtomic: 4}},
		{Name: "soft1", Addr: netip.MustParseAddr("127.0.0.2"), Limits: soft.Limits{MaxRdAtomic: 3}},
	}}))(t)
	a, b := connected(t, Config{Provider: p})
	if a.rt.reads != 4 || b.rt.reads != 3 {
		t.Errorf("%d and %d READs at once, want 4 and 3", a.rt.reads, b.rt.reads)
	}
}

// Rule: the options given to Listen apply to the listener's connections. A zero option
// (PrivateData, too) gets the runtime's value. This happens only one time: Listen turns Inline -1
// into 0, and this 0 does not get the runtime's value later.
func TestOptionsAreInheritedOnce(t *testing.T) {
	server := mustOpen(t, Config{Device: second.name, Conn: Options{PrivateData: []byte("hi")}})
	client := mustOpen(t, Config{Device: first.name, Conn: Options{PrivateData: []byte("ho")}})
	ln := must.Get(server.ListenOptions(":0", Options{Inline: -1}))(t)
	seat := must.Get(ln.AcceptAsync())(t)
	c := must.Get(client.Dial(testContext(t), ln.Addr().String()))(t)
	s := must.Get(seat.Await(testContext(t)))(t)
	if string(c.PrivateData()) != "hi" || string(s.PrivateData()) != "ho" {
		t.Errorf("the runtimes' private data arrived as %q and %q", c.PrivateData(), s.PrivateData())
	}
	if s.opts.Inline != 0 || s.q.Inline() > frameSize {
		t.Errorf("Listen said Inline -1, and %d of %d bytes go inline", s.opts.Inline, s.q.Inline())
	}
	f, err := s.SendBytes(testContext(t), nil)
	done(t, f, err)
	m, err := c.RecvWait(testContext(t))
	if err != nil || len(m.Data) != 0 {
		t.Fatalf("an empty message arrived as %q, %v", m.Data, err)
	}
	release(t, m)
}

// Rule: memory that this library allocated cannot be registered a second time.
func TestOwnMemoryIsNotRegisteredAgain(t *testing.T) {
	rt := mustOpen(t, Config{})
	region := must.Get(rt.NewRegion(1<<16, allAccess))(t)
	buf := must.Get(rt.Alloc(100))(t)
	defer buf.Release()
	for what, b := range map[string][]byte{"region": region.Bytes(), "part of a region": region.Bytes()[100:200], "buffer": buf.Bytes()} {
		_, err := rt.Register(b, allAccess)
		mistake(t, what, err, ErrOwnMemory, "bytes at 0x")
	}
	if err := region.Close(); err != nil {
		t.Error(err)
	}
}
