package runtime

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// recvPool is a shared receive queue of managed connections, with its receives. The connections of a shard
// whose messages have the same largest size share one, or several if they are many.
//
// Each receive belongs to a connection's share or is free. A share is the connection's window (the messages
// that the peer may have under way or the program may hold), one receive for the peer's credit update, and one
// for its Recall.
// So a message of the peer always finds a posted receive: the shares cover all credits of all peers. The share
// of a connection that has sent a large message has receives for the answers, too (reserveAnswers).
//
//	          provision            join, widen                      leave, recall
//	(memory) ──────────> free ──────────────────> share of a connection ───────────> free
//	             ^         │ recycle, while more than spare are free                     │
//	             └─────────┴──────────────────────────────<────────────────────────────┘
//
// A window begins with one message. It grows when the peer reports that it has used its last credit, and
// shrinks when the connection was idle (conn_recv_recall.go). A held message is not posted and
// still counts, so a program that holds messages makes only its own peer wait.
//
// Free receives are posted, too. An arriving message takes any posted receive; when the message is
// released, its receive is posted again. The counts stay right, because they do not depend on which
// receive a message has taken.
type recvPool struct {
	sh    *shard
	s     *SharedRecv
	size  int // bytes of a receive
	depth int // the most receives
	spare int // how many free receives the pool keeps: what some new connections need
	slots recvSlots

	// free is the number of receives in no share. The goroutines that make connections, the holder, and
	// those that release messages of ended connections change it. It publishes nothing.
	free atomic.Int64
	// made is the number of receives. Goroutines that provision or recycle receives, and the holder, change
	// it. It publishes nothing.
	made atomic.Int64
	// members is the number of connections. Goroutines that make connections and the holder change it.
	members atomic.Int64
	// growing is set while a goroutine provisions receives for growing windows; growFailed is set if the
	// last one failed. The holder sets growing, and reads both; the goroutine clears growing after it has
	// written growFailed. (A stepped runtime has no such goroutine; the holder writes growFailed.)
	growing, growFailed atomic.Bool

	mu     sync.Mutex // guards the next four fields; no goroutine waits or calls the device while it holds mu
	unused []uint32   // slots without a buffer
	// claims is how many unused slots are set aside: one for each connection that has not sent a large message.
	claims   int
	opened   bool     // the shared receive queue exists
	unposted []uint32 // slots to post when it does

	// Holder only:
	wide    int            // connections whose window is larger than one message
	timer   *reactor.Timer // calls tick while wide is not 0
	denied  bool           // a connection has not got its part since the last tick (windowPart)
	wanting []*Conn        // connections whose windows grow when more receives were made
	missing int            // the sum of their Conn.missing
	// growTask calls serveWanting.
	growTask reactor.Task
}

const (
	// poolDepth is the most receives of a pool: 16 MiB with default messages. The reactor keeps a slot, a
	// work request and an entry of the completion queue for each. With half as many, two connections with
	// their largest windows would leave nothing to others. A pool of large receives has fewer, poolBytes in
	// all, but at least minDepth. If the device permits fewer than minDepth, connections do not share
	// receives.
	poolDepth = 2048
	poolBytes = 64 << 20
	minDepth  = 32
	// minShare is the share of a connection that is idle: one message, and the control frames that use no credit.
	minShare = 1 + controlRecvs
	// poolWindow is the largest window. Half of it, after which the peer gets credits again, lasts 50 µs at 5
	// million messages a second, which is the time of a wake-up between threads. One way on the software RNIC, a
	// message takes 242 ns and 300 of CPU with 512, and 305 and 350 with 256; 1,024 are not better.
	poolWindow = 512
	// poolGrowth is the factor by which a window grows.
	poolGrowth = 4
	// unreadWindow is the largest window of a connection whose program does not take its messages.
	unreadWindow = DefaultRecvCredits
	// maxSpare and spareBytes limit recvPool.spare.
	maxSpare   = 16
	spareBytes = 256 << 10
)

// pooled reports whether connections with the options o share receives.
func (rt *Runtime) pooled(o Options) bool { return !o.Raw && o.RecvCredits == 0 && rt.srqs >= minDepth }

// join reserves the smallest share, and sets a slot aside for the answers to large messages. It returns false
// if the pool has no room for another connection. It waits for memory until asked ends.
func (p *recvPool) join(asked reactor.DoneContext) (bool, error) {
	if !p.claim() {
		return false, nil
	}
	for !p.reserve(minShare) {
		if made, err := p.provision(asked, p.spare); made == 0 {
			p.unclaim()
			return false, err
		}
	}
	p.members.Add(1)
	return true, nil
}

// reserve takes n free receives for a share. It returns false and takes none if fewer are free.
func (p *recvPool) reserve(n int) bool {
	for {
		free := p.free.Load()
		if free < int64(n) {
			return false
		}
		if p.free.CompareAndSwap(free, free-int64(n)) {
			return true
		}
	}
}

// recycle takes back the receive of an arrived message. The caller then adds the credit to its ledger.
// Any goroutine may call it.
func (p *recvPool) recycle(s *recvSlot) {
	if p.free.Load() <= int64(p.spare) || !p.reserve(1) {
		p.postLater(s)
		return
	}
	p.unmake(s) // a free receive backs the credit
}

// unmake frees the buffer of a receive that is not posted.
func (p *recvPool) unmake(s *recvSlot) {
	s.buf.drop()
	s.buf = Buffer{}
	p.made.Add(-1)
	p.putUnused(s.i)
}

// Complete implements reactor.Sink, for the receives of the pool.
func (p *recvPool) Complete(_ SinkContext, r Result, err error) {
	s := p.slots.at(uint32(r.Tag))
	c := p.s.conns[r.QPNum]
	switch {
	case err == nil && c != nil:
		c.q.NotePeerReceive()
		if s.c.Load() != c { // the store is slower than the load
			s.c.Store(c)
		}
		c.take(s, r)
	case p.s.gone: // the queue was closed
		p.unmake(s)
	case err == nil: // a message of a connection that has ended; the receive counts as posted
		p.postLater(s)
		p.s.q.Ready()
	default:
		p.failed(s, c, err)
	}
}

// failed handles a receive that ended with err, on a queue pair of c if c is not nil.
func (p *recvPool) failed(s *recvSlot, c *Conn, err error) {
	wc, completed := errors.AsType[*verbs.WCError](err)
	if !completed { // the device has refused to post it, so the peers' credits are not backed any more
		p.unmake(s)
		p.free.Add(-1)
		for _, c := range p.ordered() {
			c.failRefused(err)
		}
		return
	}
	p.postLater(s)
	if c != nil && wc.Status != verbs.WCWRFlushErr {
		c.sh.r.Defer(func() { c.fail(err) })
	}
}

// ordered returns the connections in the order of their queue pairs. Holder only.
func (p *recvPool) ordered() []*Conn {
	return slices.SortedFunc(maps.Values(p.s.conns), func(a, b *Conn) int { return cmp.Compare(a.q.QP().Num(), b.q.QP().Num()) })
}

// leave gives the share of c back, except the receives of messages that the program holds: each of these
// becomes free when the message is released. The device must not use the queue pair of c any more. Call
// leave once for each connection that has joined. Holder only, unless c had no queue pair.
//
// If the device drops the completion of a message when the queue pair is destroyed (libmlx5 does), the
// receive of this message is lost until the pool is closed. That can happen only to connections that end
// without LAST_WQE_REACHED: those that are aborted while they are being closed.
func (p *recvPool) leave(c *Conn) {
	unreturned, granted := c.ledger.end()
	p.free.Add(int64(unreturned) + int64(int32(granted-uint32(c.arrivals))) + minShare - 1 + int64(c.endReserved()))
	p.members.Add(-1)
	if c.window.Swap(1) > 1 { // it has ended, so no other goroutine changes it
		p.wide--
	}
}

// leavePool calls recvPool.leave if the connection has a pool.
func (c *Conn) leavePool() {
	if c.pool != nil {
		c.pool.leave(c)
	}
}
