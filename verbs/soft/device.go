package soft

import (
	"encoding/binary"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// device is one software RNIC: an engine attached to a port of the fabric.
// Contexts are handles on it.
//
// Unless a field says otherwise it belongs to the holder of the port's token:
// the engine in Turn, or a control call in exclusive.
type device struct {
	provider *Provider
	cfg      DeviceConfig
	index    int // among the provider's
	gid      verbs.GID
	guid     uint64
	random   io.Reader // for keys, PSNs and numbers; the fabric's

	opens int                         // contexts; under Provider.opening
	port  atomic.Pointer[fabric.Port] // written under Provider.opening; nil while no context is open
	p     *fabric.Port                // the same, for the engine

	contexts []*deviceContext // open ones, oldest first; under Provider.opening
	// removed is set once, by remove, under the port's token: a call in an exclusive
	// section sees it or is over before. Read by everybody.
	removed uatomic.Bool
	// down says that the port is down. Written by SetPort under opening and the
	// token; read by QueryPort. Nothing hangs on it.
	down uatomic.Bool

	// doorbells are the queue pairs with new work requests. Pushed by posters,
	// taken by the engine.
	doorbells ring.Inbox[queuePair, *queuePair]
	// synced are the FLUSHes whose pages are written. Pushed by their
	// goroutines, taken by the engine.
	synced    ring.Inbox[persistence, *persistence]
	syncSlots chan struct{} // holds one entry for each goroutine that writes
	// syncRange writes pages: (*mem.Arena).Sync, immutable.
	syncRange func(a *mem.Arena, addr uint64, n int) error

	qps     []*queuePair // by index (the low bits of the number); 0 and 1 stay empty
	qpCount int
	qpNumbers
	keys      keyTable
	ahs       []*addressHandle // by index (the low bits of the handle)
	freeAHs   []int
	ahCount   int
	ahRound   uint32 // goes into the handle
	groups    map[verbs.GID]*mcastGroup
	counters  Counters
	windows   int   // how many of the keys are windows'
	freeSlots []int // of regions, to use again
	usedSlots int
	numbers   uint32

	now      time.Duration
	busy     []*queuePair // to be worked on in this turn
	later    []*queuePair // to be worked on in the next
	stalls   []*stall     // links without room, and who waits for it
	broken   []*queuePair // to be moved to ERR before the turn ends
	timers   timerHeap
	dirtyCQs []*completionQueue
	domains  []*xrcDomain            // those of a file
	xrcSRQs  map[uint32]*sharedQueue // by number
	lastSRQN uint32
	lastWQE  []*queuePair // to be told that their last receive has completed
	held     *guard       // the guard this engine is inside of
	parked   int          // packets that wait behind a FLUSH, of all queue pairs
	lostWC   verbs.WC     // where completions for a dead queue go
	scratch  scratch

	// Hooks of the connection manager. All are called in the engine's turn (or
	// in a control call's exclusive section) and must not block, nor call
	// exclusive. onMAD gets a management datagram that is valid during the
	// call; onTurn runs its timers and says when it wants to run next (0:
	// never); onCommEst tells that a queue pair got its first packet.
	onMAD     func(now time.Duration, src verbs.GID, mad []byte)
	onTurn    func(now time.Duration) (next time.Duration)
	onCommEst func(q *queuePair)

	cm *deviceCM // cm_device.go
}

var _ fabric.Endpoint = (*device)(nil)

// qpNumbers is where the numbering of queue pairs stands.
type qpNumbers struct {
	qpHint  int    // where to look for a free index
	qpRound uint32 // goes into the number, so that it is not used again soon
}

// guidPrefix begins the GUIDs of software devices: locally administered.
const guidPrefix = 0x02_53_6f_66_74 // 02 "Soft"

func newDevice(p *Provider, c DeviceConfig, index int) *device {
	d := &device{provider: p, cfg: c, index: index, gid: verbs.GIDFromAddr(c.Addr), random: p.fab.Rand()}
	d.guid = guidPrefix<<24 | uint64(binary.BigEndian.Uint32(d.gid[12:])&0xffffff)
	d.qpHint = firstQP
	d.scratch.init()
	d.syncSlots, d.syncRange = make(chan struct{}, syncsAtOnce), (*mem.Arena).Sync
	d.startCM(p.cmConfig)
	return d
}

func (d *device) info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, GUID: d.guid, Addr: []netip.Addr{d.cfg.Addr}, Node: -1}
}

// attach joins the fabric. The caller holds Provider.opening.
func (d *device) attach() error {
	p, err := d.provider.fab.Attach(d.gid, d.cfg.Name, d)
	if err != nil {
		return err
	}
	d.port.Store(p)
	p.Exclusive(func() { // what came before waits in the inbox
		p.SetDown(d.down.Load())
		d.p = p
	})
	return nil
}

// detach leaves the fabric, unless remove has done so. No object is alive. The caller holds
// Provider.opening.
func (d *device) detach() {
	p := d.port.Load()
	p.Exclusive(func() {
		d.counters.Overflow += p.Overflow()
		d.p = nil
		d.empty()
	})
	d.port.Store(nil)
	p.Detach()
}

// empty lets go of all that grew while the device was open. Nobody runs the
// engine from now on, so TIMEWAIT ends here: no packet that is on its way finds
// the device, and a device that is opened again answers what comes for its old
// connections as it answers for any that it does not know. What stays are
// counters, and where the numbering of queue pairs stands.
func (d *device) empty() {
	d.cm.machine.Reset()
	d.timers, d.busy, d.later, d.stalls = nil, nil, nil, nil
	d.broken, d.lastWQE, d.dirtyCQs = nil, nil, nil
	d.qps, d.keys, d.ahs, d.freeAHs = nil, keyTable{}, nil, nil
	d.freeSlots, d.usedSlots = nil, 0
	d.groups, d.xrcSRQs, d.cm.byQP = nil, nil, map[*queuePair]*cmID{}
}

// exclusive runs fn with the engine at rest, and turns the engine afterwards.
// It waits for a running turn to end. Never call it from a turn or from fn.
func (d *device) exclusive(fn func()) {
	if p := d.port.Load(); p != nil {
		p.Exclusive(fn)
		return
	}
	// Nobody has the device open, so nobody else has an object of it.
	fn()
}

// kick runs the engine, after work was left for it.
func (d *device) kick() {
	if p := d.port.Load(); p != nil {
		p.Kick()
	}
}

// kickFor is kick, after requests were posted to q, nil for none. When the engine
// is at rest, the caller, who runs it then, puts q on its list himself, which
// spares both the doorbell.
func (d *device) kickFor(q *queuePair) {
	p := d.port.Load()
	if p == nil {
		return
	}
	if q != nil {
		if p.Enter() {
			// Looked at again with the token: once it has left the fabric, the
			// device is not the old port's any more (detach waits for the token).
			if d.port.Load() == p {
				d.activate(q)
			} else {
				q.ringDoorbell()
			}
			p.Run()
			return
		}
		q.ringDoorbell()
	}
	p.Kick()
}

// nextNumber numbers objects for messages.
func (d *device) nextNumber() uint32 {
	d.numbers++
	return d.numbers
}

// draw is n random bits, at most 32.
func (d *device) draw(n uint) (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(d.random, b[:]); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b[:]) >> (32 - n), nil
}
