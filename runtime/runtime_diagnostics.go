package runtime

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
)

// Record is the flight recorder's entry for one operation; see Options.Recorder.
type Record = reactor.Record

// Recorded returns the entries of the connection's flight recorder; nil without
// one (Options.Recorder). Completed operations come first, in the order of
// completion, then the outstanding ones. The entries include the receives that the
// runtime keeps posted and the messages that it sends itself, but no receives of a
// SharedRecv. Recorded works during the connection's life and after Close; for
// example, it helps to report why a connection failed:
//
//	<-conn.Done()
//	log.Print(conn.Err())
//	for _, r := range conn.Recorded() {
//		log.Print(r)
//	}
//
// When Done is closed, outstanding operations may not be flushed yet; when Close has returned,
// they are. The result is a copy. It waits for one turn of a reactor; do not call it from a Sink.
func (c *Conn) Recorded() []Record { return c.q.Recorded() }

// Recorded is [Conn.Recorded] for datagrams.
func (p *PacketConn) Recorded() []Record { return p.q.Recorded() }

// Stuck is an operation that has been outstanding for long; see [Runtime.Stuck].
type Stuck struct {
	reactor.Stuck
	// Conn or PacketConn is the owner of the operation. Both are nil if it
	// was closed in the meantime.
	Conn       *Conn
	PacketConn *PacketConn
}

// Stuck returns the operations that have been outstanding for at least the duration
// longer, the oldest first. For a connection with a recorder (Options.Recorder) it
// returns each of them, with its times. Without a recorder only the oldest operation of
// each connection is reported, and its Since may be later than its real start: by up to
// an eighth of the smallest PeerTimeout bound on its reactor, or, with neither PeerTimeout
// nor KeepAlive, by up to the time since the last call of Stuck. So an operation may be
// missed at first. Receives are not reported, nor operations that wait for a credit.
//
// It waits for a turn of every reactor, visits every connection and allocates:
// it is meant for people and watchdogs. Do not call it from a Sink.
func (rt *Runtime) Stuck(longer time.Duration) []Stuck {
	var all []Stuck
	for _, s := range rt.shards {
		for _, o := range s.r.Stuck(longer) {
			all = append(all, Stuck{Stuck: o})
		}
	}
	if len(all) == 0 {
		return nil
	}
	conns, packets := map[*reactor.Queue]*Conn{}, map[*reactor.Queue]*PacketConn{}
	rt.mu.Lock()
	for c := range rt.live {
		conns[c.q] = c
	}
	for p := range rt.packets {
		packets[p.q] = p
	}
	rt.mu.Unlock()
	for i := range all {
		all[i].Conn, all[i].PacketConn = conns[all[i].Queue], packets[all[i].Queue]
	}
	slices.SortStableFunc(all, func(a, b Stuck) int { return a.Since.Compare(b.Since) })
	return all
}
