package cm

import (
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// Defaults of a [Config]. They are for links on which an answer takes
// microseconds; the kernel's, for a fabric of machines, are 20, 15 and 24.
const (
	defaultResponseTimeout = 15 // 134 ms
	defaultMaxRetries      = 7  // 8 datagrams, so 1.07 s until a peer is unreachable
	defaultServiceTimeout  = 20 // 4.3 s
	defaultTimeWait        = 134 * time.Millisecond
)

// maxTimeoutCode bounds every timeout a peer may request (68.7 s, the value in the kernel's MRA),
// so that a hostile 31 does not keep a connection for hours.
const maxTimeoutCode = 24

// minTimeout is their lower bound: a peer that requests 4 µs does not cause a storm of repetitions.
const minTimeout = 100 * time.Microsecond

// rejKeep bounds how long a refused request is remembered, so that its
// repetitions get the same answer.
const rejKeep = 10 * time.Second

// maxRemembered bounds how many refusals and answers are remembered at once, because the peers
// choose their number. Further ones are forgotten when they are sent, as in the kernel, and a
// repetition comes as a new request.
const maxRemembered = 1024

// Config configures a [Machine]. Send, Event and Rand must be set.
type Config struct {
	GID  verbs.GID // the port's address
	GUID uint64    // the device's
	MTU  verbs.MTU // largest path MTU accepted; 0: MTU4096
	// FarMTU returns the largest path MTU between processes; nil: MTU4096. It must not call the machine.
	FarMTU func(wire.Path) verbs.MTU
	// Inside reports whether the peer of a path is in this process, so that its datagrams are not forged; nil:
	// all paths without UDP ports. It must not call the machine.
	Inside func(wire.Path) bool

	// ResponseTimeout is the code (4.096 µs × 2^code) of the time after which an unanswered REQ,
	// REP or DREQ is repeated; 0: 15.
	ResponseTimeout uint8
	// MaxRetries is how often they are repeated, at most 15; 0: 7.
	MaxRetries uint8
	// ServiceTimeout is the code of the time that an MRA asks the peer to wait; 0: 20.
	ServiceTimeout uint8
	// TimeWait is how long a finished connection keeps its numbers; 0: 134 ms.
	TimeWait time.Duration

	// Send transmits a datagram. The machine owns m; Send copies it. It must not call the machine. A stranger's
	// address is not proven: m may answer a forged datagram.
	Send func(dst wire.Path, m *MAD, stranger bool)
	// Event reports an event. It may call the machine.
	Event func(Event)
	// Rand returns unpredictable numbers; communication IDs come from it.
	Rand func() uint64
}

func (c *Config) validate() error {
	if c.Send == nil || c.Event == nil || c.Rand == nil {
		return errors.New("cm: Config needs Send, Event and Rand")
	}
	if c.MTU == 0 {
		c.MTU = verbs.MTU4096
	}
	if c.ResponseTimeout == 0 {
		c.ResponseTimeout = defaultResponseTimeout
	}
	if c.MaxRetries == 0 {
		c.MaxRetries = defaultMaxRetries
	}
	if c.ServiceTimeout == 0 {
		c.ServiceTimeout = defaultServiceTimeout
	}
	if c.TimeWait == 0 {
		c.TimeWait = defaultTimeWait
	}
	switch {
	case c.MTU.Bytes() == 0:
		return fmt.Errorf("cm: Config.MTU: no such path MTU %d", c.MTU)
	case c.ResponseTimeout > maxTimeoutCode:
		return fmt.Errorf("cm: Config.ResponseTimeout is %d, at most %d", c.ResponseTimeout, maxTimeoutCode)
	case c.MaxRetries > 15:
		return fmt.Errorf("cm: Config.MaxRetries is %d, at most 15", c.MaxRetries)
	case c.ServiceTimeout > maxTimeoutCode:
		return fmt.Errorf("cm: Config.ServiceTimeout is %d, at most %d", c.ServiceTimeout, maxTimeoutCode)
	case c.TimeWait < 0:
		return fmt.Errorf("cm: Config.TimeWait is %v, must not be negative", c.TimeWait)
	}
	return nil
}

// Stats counts datagrams.
type Stats struct {
	Sent      uint64
	Repeated  uint64 // of Sent: repeated, because no answer came or on request
	Withheld  uint64 // not sent, because the address is not proven
	Received  uint64
	Malformed uint64
	Ignored   uint64 // well formed, but of no connection, or not valid in the state
}

// Machine is the connection manager of one port. It is not safe for concurrent use: its owner
// serializes the calls, and so gets one callback at a time.
type Machine struct {
	cfg       Config
	stats     Stats
	listeners map[uint64][]*Listener // by service ID
	byLocal   map[uint32]*Conn       // all connections, except those in timewait
	byRemote  map[remoteID]*Conn     // passive connections, to recognize a repeated REQ
	byQPN     map[remoteQP]*Conn     // connections that know the peer's queue pair
	bySIDR    map[remoteID]*Conn     // queries of peers, by their request IDs
	asking    map[wire.Path]conns    // connections whose REQ has no REP, by the path without this end's address
	timers    timerHeap
	timewait  timewait // closed by their owners
	kept      int      // connections in REJ_SENT or SIDR_REP_SENT, at most maxRemembered
	buf       MAD      // for datagrams that are not repeated
	req       REQ      // the last received
	rej       REJ      // the last sent
}

// conns is a set of connections.
type conns map[*Conn]struct{}

type remoteID struct {
	peer wire.Path
	id   uint32
}

type remoteQP struct {
	peer wire.Path
	qpn  uint32
}

// New returns a machine.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg, listeners: map[uint64][]*Listener{}}
	m.Reset()
	return m, nil
}

// Reset forgets every connection, those in TIMEWAIT too, without datagrams or events. It is for a
// port that leaves its network: all connections are closed by their owners, and none of their
// packets arrive any more. Listeners stay.
func (m *Machine) Reset() {
	m.byLocal, m.byRemote, m.byQPN, m.bySIDR = map[uint32]*Conn{}, map[remoteID]*Conn{}, map[remoteQP]*Conn{}, map[remoteID]*Conn{}
	m.asking, m.timers, m.timewait, m.kept = map[wire.Path]conns{}, timerHeap{}, timewait{}, 0
}

// mtuOf returns the largest path MTU of a path.
func (m *Machine) mtuOf(p wire.Path) verbs.MTU {
	switch {
	case !p.Far():
		return m.cfg.MTU
	case m.cfg.FarMTU == nil:
		return min(m.cfg.MTU, verbs.MTU4096)
	}
	return min(m.cfg.MTU, m.cfg.FarMTU(p))
}

// inside reports whether the peer of a path is in this process.
func (m *Machine) inside(p *wire.Path) bool {
	return !p.Far() && (m.cfg.Inside == nil || m.cfg.Inside(*p))
}

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Conns returns the number of connections, including those that their owners have closed and that
// still wait for the peer or for the end of TIMEWAIT.
func (m *Machine) Conns() int { return len(m.byLocal) + m.timewait.len() }

// Next returns the time at which Progress has something to do; 0 for never.
func (m *Machine) Next() time.Duration {
	t, w := m.timers.next(), m.timewait.next()
	if t == 0 || w != 0 && w < t {
		return w
	}
	return t
}

// Progress does all work due at now and returns [Machine.Next].
func (m *Machine) Progress(now time.Duration) time.Duration {
	for c := m.timers.due(now); c != nil; c = m.timers.due(now) {
		c.expired(now)
	}
	if m.timewait.len() == 0 { // usually, and an engine calls this in every run
		return m.timers.next()
	}
	m.timewait.expire(now)
	return m.Next()
}

// Receive handles a datagram that arrived from src. An error means that it was malformed; it was
// counted and dropped, and the caller need not act.
func (m *Machine) Receive(now time.Duration, src wire.Path, b []byte) error {
	m.stats.Received++
	msg, err := parse(b, &m.req)
	if err != nil {
		m.stats.Malformed++
		return err
	}
	used := false
	switch msg := msg.(type) {
	case *REQ:
		used = m.onREQ(now, src, msg)
	case *REP:
		used = m.onREP(now, src, msg)
	case *RTU:
		used = m.onRTU(src, msg)
	case *REJ:
		used = m.onREJ(now, src, msg)
	case *MRA:
		used = m.onMRA(now, src, msg)
	case *DREQ:
		used = m.onDREQ(now, src, msg)
	case *DREP:
		used = m.onDREP(now, src, msg)
	case *SIDRREQ:
		used = m.onSIDRREQ(now, src, msg)
	case *SIDRREP:
		used = m.onSIDRREP(src, msg)
	}
	if !used {
		m.stats.Ignored++
	}
	return nil
}

// find returns the connection with the local ID whose peer has address src and the given remote ID;
// nil if there is none.
func (m *Machine) find(src wire.Path, local, remote uint32) *Conn {
	c := m.byLocal[local]
	if c == nil || c.peer != src || c.remote != remote {
		return nil
	}
	c.proven = true
	return c
}

// newID returns an unpredictable communication ID that is not in use.
func (m *Machine) newID() uint32 {
	for {
		id := uint32(m.cfg.Rand())
		if id != 0 && m.byLocal[id] == nil && !m.timewait.hasID(id) {
			return id
		}
	}
}

// send transmits a message that is not kept for repetition. Its fields are checked at their source,
// so that it always fits.
func (m *Machine) send(dst wire.Path, msg Message, stranger bool) {
	if err := msg.Put(&m.buf); err != nil {
		panic(err) // an invalid local field, not the peer's
	}
	m.stats.Sent++
	m.cfg.Send(dst, &m.buf, stranger)
}

// refuse answers a REQ or REP without remembering it. The address of the sender is not proven.
func (m *Machine) refuse(dst wire.Path, rej REJ, ari ...byte) {
	m.rej = rej
	m.rej.ARILen = uint8(copy(m.rej.ARI[:], ari))
	m.send(dst, &m.rej, true)
}

// codeTime returns the time of a timeout code, within the bounds.
func codeTime(code uint8) time.Duration {
	return max(minTimeout, timeoutUnit<<min(code, maxTimeoutCode))
}

// timeoutUnit is the unit of all CM timeouts (IBTA 12.7.24).
const timeoutUnit = 4096 * time.Nanosecond
