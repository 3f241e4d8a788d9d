package runtime

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Record is the flight recorder's entry for one operation; see Options.Recorder.
type Record = reactor.Record

// Recorded returns a copy of the entries of the connection's flight recorder, or nil if there is no
// recorder (Options.Recorder). Completed operations come first, in the order of completion.
// Outstanding operations follow. The entries include the receives that the runtime keeps posted and
// the messages that the runtime itself sends, but not the receives of a SharedRecv. Recorded may be
// called at any time, also after Close. For example, Recorded helps to find out why a connection
// failed:
//
//	<-conn.Done()
//	log.Print(conn.Err())
//	for _, r := range conn.Recorded() {
//		log.Print(r)
//	}
//
// When the channel Done is closed, some operations may still be outstanding. When Close has returned,
// no operation is outstanding. Recorded waits for the turn of the connection's reactor, so do not
// call it from a Sink.
func (c *Conn) Recorded() []Record { return c.q.Recorded() }

// Recorded is [Conn.Recorded] for datagrams.
func (p *PacketConn) Recorded() []Record { return p.q.Recorded() }

// Attributes returns the attributes of the connection's queue pair, as the device reports them: what both
// ends have agreed on, and what the device has granted. It is meant for diagnosis: it waits for the turn of the
// connection's reactor, until ctx ends, and then asks the device, with the turn held. Do not call it from a
// Sink.
//
// Errors: ErrConnClosed; errors of the device; the context's error.
//
// Implements: ibv_query_qp.
func (c *Conn) Attributes(ctx context.Context) (verbs.QPAttr, error) {
	var attr verbs.QPAttr
	err := ErrConnClosed
	if derr := c.sh.r.Do(ctx, func() {
		if c.state != connGone && c.q.QP() != nil {
			attr, err = c.q.QP().Query()
		}
	}); derr != nil {
		return verbs.QPAttr{}, derr // the function may run later: its results belong to it
	}
	return attr, err
}

// Stuck is an operation that has been outstanding for a long time, or a connection on which no answer can come;
// see [Runtime.Stuck].
type Stuck struct {
	reactor.Stuck
	// Reason is not empty for a connection on which Calls wait for answers that cannot come, because messages that
	// the program has not received or not released hold all receives that the peer may use. Of the reactor's
	// fields, Queue, QPNum and Since are set, the latter to the time of the first call of Runtime.Stuck that saw it.
	Reason string
	// Either Conn or PacketConn is the owner of the operation, and the other is nil. If the owner has
	// been closed since, both are nil.
	Conn       *Conn
	PacketConn *PacketConn
}

// Stuck returns the operations that have been outstanding for at least the given duration, and the connections
// on which unread messages have stopped the answers to Calls for so long (Stuck.Reason), the oldest first. Stuck
// reports neither receives nor operations that wait for a credit.
//
// For a connection with a recorder (Options.Recorder), Stuck reports every such operation, with its
// times. For a connection without a recorder, Stuck reports only the oldest operation. The field
// Since is then the time at which the runtime first noticed that the operation was outstanding.
// This time may be late, and the first calls of Stuck may miss the operation. If the connection has
// a PeerTimeout, the time is late by at most an eighth of the smallest PeerTimeout bound on the
// reactor. Otherwise it is late by at most the time between two calls of Stuck.
//
// Stuck waits for the turn of every reactor, visits every connection and allocates. It is meant for
// diagnosis and monitoring. Do not call it from a Sink.
func (rt *Runtime) Stuck(longer time.Duration) []Stuck {
	var all []Stuck
	for _, s := range rt.shards {
		for _, o := range s.r.Stuck(longer) {
			all = append(all, Stuck{Stuck: o})
		}
	}
	conns, packets := map[*reactor.Queue]*Conn{}, map[*reactor.Queue]*PacketConn{}
	shards := map[*shard][]*Conn{}
	rt.mu.Lock()
	for c := range rt.live {
		conns[c.q] = c
		shards[c.sh] = append(shards[c.sh], c)
	}
	for p := range rt.packets {
		packets[p.q] = p
	}
	rt.mu.Unlock()
	for sh, cs := range shards {
		// An error means that the reactor is closed, and then no Call waits.
		_ = sh.r.Do(context.Background(), func() {
			for _, c := range cs {
				all = c.stopped(all, longer)
			}
		})
	}
	for i := range all {
		all[i].Conn, all[i].PacketConn = conns[all[i].Queue], packets[all[i].Queue]
	}
	slices.SortStableFunc(all, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return all
}

// String describes s in one line.
func (s Stuck) String() string {
	if s.Reason == "" {
		return s.Stuck.String()
	}
	return fmt.Sprintf("QP %d: at least since %s: %s", s.QPNum, s.Since.Format("15:04:05.000000"), s.Reason)
}

// stopped appends the connection to all if its Calls wait for answers that the peer has no credit for, and no
// credit is on its way, for at least the given duration. Holder only.
func (c *Conn) stopped(all []Stuck, longer time.Duration) []Stuck {
	n := c.calls.waiting()
	if n == 0 || !c.uncovered() || c.ledger.unreturned() > 0 || c.missing > 0 || c.state != connOpen {
		c.stoppedSince = time.Time{}
		return all
	}
	now := c.rt.Now()
	if c.stoppedSince.IsZero() {
		c.stoppedSince = now
	}
	if now.Sub(c.stoppedSince) < longer {
		return all
	}
	return append(all, Stuck{
		Stuck: reactor.Stuck{Queue: c.q, QPNum: c.qpn, Since: c.stoppedSince},
		Reason: fmt.Sprintf("%d Calls wait for answers that the peer has no receive for: %d messages that the program has not received or not released hold them",
			n, c.window.Load()),
	})
}
