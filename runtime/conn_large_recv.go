package runtime

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// fetches are the large messages that a connection receives. Only the holder uses the fields, except as stated.
type fetches struct {
	// line has the messages that are not delivered, because one of them was not read yet, oldest first. Answers
	// are delivered without regard to the messages before them. The first other message is large.
	line []*recvSlot
	// unanswered counts the large messages for which no Fetched frame was posted.
	unanswered int
	// wanted is set when the program has waited for a message. Before that, and before it has sent a large
	// message itself, only answers to its Calls are read: so peers that the program has not accepted take no memory.
	wanted  bool
	reading int      // outstanding READs
	unsent  []uint32 // keys of messages that were read and not answered, because the queue was full
	timer   *reactor.Timer

	// held is the number of bytes that are allocated for messages, and those that the program holds. The holder
	// adds, goroutines that release messages subtract.
	held atomic.Int64
	// short is set by the holder when a message waits for held to sink. A goroutine that has changed held reads
	// it, and then schedules task.
	short atomic.Bool
	task  reactor.Task
}

// fetch is the reading of one large message.
//
//	            pump: the budget permits            READ completed
//	waiting ──────────────> allocating ──> ready ──> reading ───────────> fetched
//	   ^   no memory: again    │                      │ failed, as the connection does
//	   └───────────────────────┘                      └──> waiting
type fetch struct {
	c     *Conn
	from  proto.Source
	state fetchState
	buf   Buffer // from ready on
}

type fetchState uint8

const (
	fetchWaiting fetchState = iota
	fetchAllocating
	fetchReady
	fetchReading
	fetchFetched
)

// noMemoryDelay is the time after which an allocation that has failed for lack of memory is tried again.
const noMemoryDelay = 10 * time.Millisecond

// offered returns the fetch of the Large frame in s, or an error if it breaks the protocol.
func (c *Conn) offered(s *recvSlot) (*fetch, error) {
	most := 0
	if n := c.largeBits(); n > 0 {
		most = 1 << n
	}
	from, bad := proto.ParseSource(s.buf.Bytes()[frameSize:], most)
	if bad != nil {
		return nil, (*ProtocolError)(bad)
	}
	if c.fetches == nil {
		c.fetches = &fetches{wanted: len(c.recvWaiters) > 0}
		c.fetches.task.Fn = c.pump
	}
	if c.fetches.unanswered == maxLarge {
		return nil, fmt.Errorf("%w: it has sent more than %d large messages before an answer", ErrPeerProtocol, maxLarge)
	}
	c.fetches.unanswered++
	s.n = int(from.Length)
	return &fetch{c: c, from: from}, nil
}

// arrive gives the message in s its place in the order of delivery, or the answer in s to its Call. The message
// is large if s.large is set.
func (c *Conn) arrive(s *recvSlot) {
	if s.answer && s.large == nil {
		c.takeAnswer(s)
		return
	}
	if fs := c.fetches; fs != nil && (s.large != nil || len(fs.line) > 0) {
		if s.answer && !c.calls.waits(s.asked) {
			c.decline(s)
			return
		}
		fs.line = append(fs.line, s)
		c.boundDrain()
		if s.large == nil {
			c.deliverFetched() // only answers may be before it
		}
		c.pump()
		return
	}
	c.arrivedQueue().Push(s.i)
	if len(c.recvWaiters) > 0 {
		c.match()
	}
}

// boundDrain bounds the wait of Close for answers if the peer waits for answers of this end, which sends none: otherwise
// two ends that close would wait for each other. Holder only.
func (c *Conn) boundDrain() {
	if c.state == connDraining && !c.disconnecting && c.fetches != nil && len(c.fetches.line) > 0 {
		c.within(ackGrace, c.disconnect)
	}
}

// wantLarge begins to read large messages: the program waits for a message. Holder only.
func (c *Conn) wantLarge() {
	if fs := c.fetches; fs != nil && !fs.wanted {
		fs.wanted = true
		c.pump()
	}
}

// pump goes on with the large messages, oldest first, as far as the budget and the queue permit. It is the
// function of fetches.task. Holder only.
func (c *Conn) pump() {
	fs := c.fetches
	if c.state > connOpen {
		return
	}
	all := fs.wanted || c.sendsLarge()
	for _, s := range fs.line {
		f := s.large
		if f == nil || !all && !s.answer {
			continue
		}
		if f.state == fetchWaiting && (!fs.admit(int64(f.from.Length), int64(c.opts.RecvBudget)) || !f.allocate()) {
			return
		}
		if f.state == fetchReady && !f.read() {
			return
		}
	}
}

// admit adds n bytes to the bytes held, if the budget permits that.
func (fs *fetches) admit(n, budget int64) bool {
	if fs.timer != nil {
		return false
	}
	if fs.held.Load()+n > budget {
		fs.short.Store(true)
		if fs.held.Load()+n > budget {
			return false
		}
	}
	fs.held.Add(n)
	return true
}

// allocate allocates the buffer, on a goroutine if that may block. It returns false if later messages must wait
// because there is no memory.
func (f *fetch) allocate() bool {
	c, n := f.c, int(f.from.Length)
	if buf, ok := c.rt.mem.tryAlloc(n); ok {
		f.buf, f.state = buf, fetchReady
		return true
	}
	f.state = fetchAllocating
	if c.rt.cfg.stepped { // a stepped runtime starts no goroutines
		return f.allocated(c.rt.mem.Alloc(n))
	}
	go func() {
		var buf Buffer
		err := c.rt.enter()
		if err == nil {
			buf, err = c.rt.mem.Alloc(n)
			defer c.rt.leave() // after Defer, so that Close waits for it
		}
		c.sh.r.Defer(func() {
			if f.allocated(buf, err) {
				c.pump()
			}
		})
	}()
	return true
}

// allocated takes the result of the allocation. It returns false if there was no memory. Holder only.
func (f *fetch) allocated(buf Buffer, err error) bool {
	c, fs := f.c, f.c.fetches
	if err == nil && c.state <= connOpen {
		f.buf, f.state = buf, fetchReady
		return true
	}
	f.state = fetchWaiting
	fs.held.Add(-int64(f.from.Length))
	switch _, limit := errors.AsType[*NoMemoryError](err); {
	case err == nil:
		buf.drop()
	case c.state > connOpen, errors.Is(err, ErrClosed): // nothing is read any more
	case limit, errors.Is(err, ErrMemlock):
		fs.timer = c.sh.r.After(noMemoryDelay, func() {
			fs.timer = nil
			c.pump()
		})
	default:
		c.sh.r.Defer(func() { c.fail(err) })
	}
	return false
}

// read posts the READ. It returns false if that is not possible now.
func (f *fetch) read() bool {
	c, fs := f.c, f.c.fetches
	if fs.reading == maxLarge {
		return false
	}
	err := c.q.PostControl(&reactor.Send{Opcode: verbs.WRRDMARead, Remote: f.from.Addr, RKey: f.from.Key, Sink: f}, reactor.Payload{SGEs: []verbs.SGE{f.buf.Slice().SGE()}})
	if err != nil { // the queue is full, and received calls pump again, or the connection has ended
		c.creditDue = true
		return false
	}
	f.state = fetchReading
	fs.reading++
	return true
}

// Complete implements reactor.Sink, for the READ.
func (f *fetch) Complete(_ SinkContext, _ Result, err error) {
	c, fs := f.c, f.c.fetches
	fs.reading--
	if err != nil { // the messages behind this one are not delivered
		f.state = fetchWaiting
		f.free()
		c.failRefused(err)
		return
	}
	f.state = fetchFetched
	fs.unsent = append(fs.unsent, f.from.Key)
	c.answerFetched()
	c.deliverFetched()
	if len(fs.line) > 0 {
		c.pump()
	}
}

// answerFetched answers messages that were read. Holder only.
func (c *Conn) answerFetched() {
	fs := c.fetches
	for len(fs.unsent) > 0 && c.postFrameAs(c.frame(proto.Fetched, 0), reactor.Send{Opcode: verbs.WRSendWithInv, Invalidate: fs.unsent[0]}) {
		fs.unsent = slices.Delete(fs.unsent, 0, 1)
		fs.unanswered--
	}
}

// deliverFetched delivers the answers in the line that were read, and the other messages up to the first that was
// not read. Holder only.
func (c *Conn) deliverFetched() {
	fs, blocked, some := c.fetches, false, false
	fs.line = slices.DeleteFunc(fs.line, func(s *recvSlot) bool {
		read := s.large == nil || s.large.state == fetchFetched
		switch {
		case s.answer:
			if read {
				c.takeAnswer(s)
			}
		case read && !blocked:
			c.arrivedQueue().Push(s.i)
			some = true
		default:
			blocked = true
			return false
		}
		return read
	})
	if some && len(c.recvWaiters) > 0 {
		c.match()
	}
}

// endFetches frees the messages that were not delivered. No request is outstanding any more. Holder only.
func (c *Conn) endFetches() {
	fs := c.fetches
	if fs == nil {
		return
	}
	c.sh.r.StopTimer(fs.timer)
	for _, s := range fs.line {
		s.giveUp(c)
	}
	fs.line = nil
}

// giveUp frees the buffer, if there is one.
func (f *fetch) giveUp() {
	if f.state >= fetchReady {
		f.free()
	}
}

// free gives the buffer back, and returns the number of its bytes to the budget. Any goroutine may call it.
func (f *fetch) free() {
	f.buf.drop()
	fs := f.c.fetches
	fs.held.Add(-int64(f.from.Length))
	if fs.short.Load() && fs.short.CompareAndSwap(true, false) {
		f.c.sh.r.Schedule(&fs.task, false)
	}
}

// releaseLarge frees the buffer of a large message that the program has released.
func (s *recvSlot) releaseLarge() {
	f := s.large
	s.large = nil
	f.free()
}
