package runtime

import (
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
)

// Record is what is kept of one operation; see Options.Recorder.
type Record = reactor.Record

// Recorded is what the connection's recorder has; nil without one (Options.Recorder). First
// the operations that ended, in that order, then those that are out. Receives that the
// runtime keeps posted and messages of its own are among them; those of a SharedRecv are not.
// It is for the report of a connection that failed, during its life and after Close:
//
//	<-conn.Done()
//	log.Print(conn.Err())
//	for _, r := range conn.Recorded() {
//		log.Print(r)
//	}
//
// When Done is closed what was out may not have been flushed yet; when Close has returned, it
// has. It is a copy. It waits for one turn of a reactor; not from a Sink.
func (c *Conn) Recorded() []Record { return c.q.Recorded() }

// Recorded is [Conn.Recorded] for datagrams.
func (p *PacketConn) Recorded() []Record { return p.q.Recorded() }

// Stuck is an operation that has been out for long; see [Runtime.Stuck].
type Stuck struct {
	reactor.Stuck
	// Conn and PacketConn are whose it is. Both are nil when that was closed meanwhile.
	Conn       *Conn
	PacketConn *PacketConn
}

// Stuck tells the operations that are out for that long or longer, those that are out longest
// first. Of a connection with a recorder (Options.Recorder) that is each of them, with its
// times; of one without only the oldest, and since when it is certain to be out, by which a
// younger one may be missed: up to an eighth of the smallest bound of PeerTimeout of a
// connection on its reactor; of one with neither PeerTimeout nor KeepAlive, as long as the
// last call of Stuck is ago. Receives are not told, nor what waits for the peer's receives.
//
// It waits for a turn of every reactor, looks at every connection and allocates: it is for
// people and watchdogs. Not from a Sink.
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
