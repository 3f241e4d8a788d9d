package interop

import (
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/rpma"
	"github.com/verbena-rdma/verbena/verbs"
)

// end is this end of a connection to a peer that uses librpma. It follows the script of testdata/peer.c.
type end struct {
	b       *bench
	passive bool
	peer    *rpma.Peer
	ep      *rpma.Endpoint // of a passive end
	mr      *rpma.MR
	own     []byte // what describes this end
	conn    *rpma.Conn
	private []byte // what describes the other end
	remote  *rpma.RemoteMR
	theirs  rpma.PeerConfig
}

// uses are those of the memory of each end.
const uses = rpma.ReadSrc | rpma.ReadDst | rpma.WriteSrc | rpma.WriteDst | rpma.FlushVisibility | rpma.SendBuf | rpma.RecvBuf

// newEnd makes an end with its memory, for persistent flushes too if the device accepts that. A passive end declares
// direct write to persistent memory, and an active one does not.
func (b *bench) newEnd(passive bool) *end {
	b.Helper()
	rt := must.Get(runtime.Open(runtime.Config{Provider: b.p, Device: b.ours.name}))(b.T)
	b.closes(rt)
	e := &end{b: b, passive: passive, peer: must.Get(rpma.NewPeer(rt))(b.T)}
	b.Cleanup(func() { b.must(e.peer.Close()) })
	var err error
	if e.mr, err = e.peer.NewMR(size, uses|rpma.FlushPersistent); err != nil {
		if b.form == plain {
			b.Fatal(err) // READs take the place of flushes
		}
		e.mr, err = e.peer.NewMR(size, uses)
		b.must(err)
	}
	b.Cleanup(func() { b.must(e.mr.Close()) })
	e.put(readable, readableLen, opRead)
	desc := must.Get(e.mr.Descriptor())(b.T)
	cfg := rpma.PeerConfig{DirectWriteToPMem: passive}.Descriptor()
	e.own = append(desc[:], cfg[:]...)
	if passive {
		e.ep = must.Get(e.peer.Listen(b.ctx, b.ours.addr.String(), "0"))(b.T)
		b.closes(e.ep)
	}
	return e
}

// put writes the data of an operation into the memory, and returns its place.
func (e *end) put(at, n, seed int) int {
	copy(e.mr.Bytes()[at:], dataOf(n, seed, e.passive))
	return at
}

// config has a receive CQ, and more time than a busy machine needs, as the program has.
var config = &rpma.ConnConfig{RCQSize: rpma.DefaultQueueSize, Timeout: patience / 2}

// dial prepares a request to the program.
func (e *end) dial(port string) *rpma.ConnReq {
	e.b.Helper()
	return must.Get(e.peer.NewConnReq(e.b.ctx, e.b.theirs.addr.String(), port, config))(e.b.T)
}

// accept waits for the request of the program.
func (e *end) accept() *rpma.ConnReq {
	e.b.Helper()
	return must.Get(e.ep.NextConnReq(e.b.ctx, config))(e.b.T)
}

// request sends the request, or accepts it, with receives for all messages.
func (e *end) request(q *rpma.ConnReq) {
	b := e.b
	b.Helper()
	for i := range messages {
		b.must(q.Recv(e.mr, inbox+i*place, place, uint64(opRecv+i)))
	}
	e.conn = must.Get(q.Connect(e.own))(b.T)
	b.closes(e.conn)
}

// connect waits for the connection, and reads what the other end has described.
func (e *end) connect(q *rpma.ConnReq) {
	b := e.b
	b.Helper()
	e.request(q)
	e.event(rpma.Established)
	if e.private = e.conn.PrivateData(); len(e.private) < describedSize {
		b.Fatalf("%d bytes of private data, want at least %d", len(e.private), describedSize)
	}
	e.private = e.private[:describedSize]
	e.remote = must.Get(rpma.ParseRemoteMR(e.private))(b.T)
	e.theirs = must.Get(rpma.ParsePeerConfig(e.private[rpma.MRSize:]))(b.T)
	want := uses
	if b.form == plain { // READs take the place of persistent flushes, too
		want |= rpma.FlushPersistent
	}
	if usage := rpma.Usage(e.private[rpma.MRSize-1]); e.remote.Size() != size || usage&want != want {
		b.Errorf("the peer has %v, want %d bytes for %v", e.remote, size, want)
	}
	cfg := rpma.PeerConfig{DirectWriteToPMem: !e.passive}.Descriptor()
	e.holds("the peer's configuration", e.private[rpma.MRSize:], cfg[:])
}

func (e *end) event(want rpma.Event) {
	e.b.Helper()
	if got, err := e.conn.NextEvent(e.b.ctx); err != nil || got != want {
		e.b.Fatalf("the next event is %v (%v, the connection: %v), want %v", got, err, e.conn.Err(), want)
	}
}

// next takes the next completion of a CQ.
func (e *end) next(cq *rpma.CQ) rpma.WC {
	e.b.Helper()
	var wc [1]rpma.WC
	for {
		_, err := cq.GetWC(wc[:])
		if err == nil {
			return wc[0]
		}
		if !errors.Is(err, rpma.ErrNoCompletion) {
			e.b.Fatal(err)
		}
		e.b.must(cq.Wait(e.b.ctx))
	}
}

// done checks the next completion of an operation.
func (e *end) done(err error, word uint64) {
	e.b.Helper()
	e.b.must(err)
	if wc := e.next(e.conn.CQ()); wc.Context != word || wc.Status != verbs.WCSuccess || wc.QPNum != e.conn.QPNum() {
		e.b.Fatalf("the completion is %+v, want a success of operation %d", wc, word)
	}
}

// converse follows the script on an established connection.
func (e *end) converse() {
	b := e.b
	b.Helper()
	if b.order == second { // the program's
		b.must(e.conn.Recv(nil, 0, 0, opRecv+messages))
	}
	if e.passive {
		e.answer()
	}
	e.drive()
	if !e.passive {
		e.answer()
	}
	if b.order == second {
		if wc := e.next(e.conn.RCQ()); wc.Err() != nil || wc.Bytes != 0 || wc.Flags&verbs.WCWithImm != 0 {
			b.Errorf("the message of no bytes arrived as %+v", wc)
		}
		b.must(e.conn.Disconnect())
		e.event(rpma.Closed)
		return
	}
	b.must(e.conn.Send(nil, 0, 0, rpma.CompletionOnError, opBye))
	e.event(rpma.Closed)
	b.must(e.conn.Disconnect())
}

func (e *end) drive() {
	b, c := e.b, e.conn
	b.Helper()
	const always = rpma.CompletionAlways
	b.must(c.Write(e.remote, written, e.mr, e.put(sources, writtenLen, opWrite), writtenLen, rpma.CompletionOnError, opWrite))
	e.done(c.Flush(e.remote, written, writtenLen, rpma.Visibility, always, opFlush), opFlush)
	flush := func() error { return c.Flush(e.remote, written, writtenLen, rpma.Persistent, always, opPersistent) }
	if err := flush(); !errors.Is(err, rpma.ErrNotSupported) {
		b.Errorf("a persistent flush before the peer's configuration returned %v", err)
	}
	c.ApplyRemotePeerConfig(e.theirs)
	if err := flush(); persistent(e.remote.FlushTypes(), e.theirs) {
		e.done(err, opPersistent)
	} else if !errors.Is(err, rpma.ErrNotSupported) {
		b.Errorf("a persistent flush of %v of a peer with %+v returned %v", e.remote, e.theirs, err)
	}
	e.done(c.AtomicWrite(e.remote, atomicWord, [atomicLen]byte(dataOf(atomicLen, opAtomic, e.passive)), always, opAtomic), opAtomic)
	e.done(c.Flush(e.remote, atomicWord, atomicLen, rpma.Visibility, always, opFlushWord), opFlushWord)
	e.done(c.Read(e.mr, fetched, e.remote, readable, readableLen, always, opRead), opRead)
	e.holds("what was read", e.mr.Bytes()[fetched:], dataOf(readableLen, opRead, !e.passive))
	from := e.put(sources+2*place, noticedLen, opNotice)
	e.done(c.WriteWithImm(e.remote, noticed, e.mr, from, noticedLen, always, noticeNumber, opNotice), opNotice)
	from = e.put(sources+3*place, messageLen, opSend)
	e.done(c.Send(e.mr, from, messageLen, always, opSend), opSend)
	from = e.put(sources+4*place, messageLen, opSendImm)
	e.done(c.SendWithImm(e.mr, from, messageLen, always, sendNumber, opSendImm), opSendImm)
}

func (e *end) answer() {
	b := e.b
	b.Helper()
	for _, want := range arrivals(!e.passive) {
		wc := e.next(e.conn.RCQ())
		imm := ""
		if wc.Flags&verbs.WCWithImm != 0 {
			imm = fmt.Sprintf("%08x ", wc.Imm)
		}
		if wc.Status != verbs.WCSuccess || wc.Opcode != want.opcode || int(wc.Bytes) != want.bytes || imm != want.imm || wc.QPNum != e.conn.QPNum() {
			b.Fatalf("%+v arrived, want %+v", wc, want)
		}
		e.holds("a message", e.mr.Bytes()[inbox+(int(wc.Context)-opRecv)*place:], want.message)
	}
	e.holds("the memory", e.mr.Bytes(), exposed(!e.passive))
}

// holds checks the beginning of some bytes.
func (e *end) holds(what string, got, want []byte) {
	e.b.Helper()
	if g, w := hexOf(got[:len(want)]), hexOf(want); g != w {
		e.b.Errorf("%s is\n%s, want\n%s", what, g, w)
	}
}
