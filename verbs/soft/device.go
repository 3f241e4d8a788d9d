package soft

import (
	"encoding/binary"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/internal/ring"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// device is one software RNIC: an engine attached to a port of the fabric. Contexts are handles
// on it.
//
// Unless a field says otherwise it belongs to the holder of the port's token: the engine in
// Progress, or a control call in exclusive.
type device struct {
	provider *Provider
	cfg      DeviceConfig
	index    int       // among the provider's devices
	gid      verbs.GID // on the fabric
	gids     gidTable
	guid     uint64
	random   io.Reader // for keys, PSNs and numbers; the fabric's

	opens int                         // contexts and holds of CM identifiers; under Provider.opening
	port  atomic.Pointer[fabric.Port] // written under Provider.opening; nil while no context is open
	p     *fabric.Port                // the same port, for the engine
	// link is the device's link to other processes, if it has one, while the device is open. Written under
	// Provider.opening; pollers read it.
	link atomic.Pointer[roce.Link]
	// dialer is the link's socket of dialed connections, once there is one: written by any call, and
	// read by any and by the engine.
	dialer atomic.Pointer[roce.End]
	// withdrawLID undoes the announcement of the dialer. Written by the call that sets dialer; read by detach.
	withdrawLID func()

	contexts []*deviceContext // open ones, oldest first; under Provider.opening
	// removed is set once, by remove, under the port's token: a call in an exclusive section
	// either sees it or ends before. Any goroutine may read it.
	removed uatomic.Bool
	// down is set while the port is down. SetPort writes it under opening and the token;
	// QueryPort reads it. It publishes nothing.
	down uatomic.Bool

	// doorbells are the queue pairs with new work requests. Posters push, the engine takes.
	doorbells ring.Inbox[queuePair, *queuePair]
	// finished are the jobs whose work is done. Their goroutines push, the engine takes.
	finished    ring.Inbox[diskJob, *diskJob]
	lines       map[lineKey]*diskLine // nil before the first job
	present     *diskJob              // the job whose parked packets are executed now
	slowRegions int                   // number of regions with slow memory
	disk        diskWork              // immutable

	qpNumbers
	keys      keyTable
	ahs       []*addressHandle // by index (the low bits of the handle)
	freeAHs   []int
	ahCount   int
	ahRound   uint32 // part of the handle
	groups    map[verbs.GID]*mcastGroup
	counters  Counters
	again     Again
	windows   int   // number of keys that belong to windows
	freeSlots []int // of regions, for reuse
	usedSlots int
	numbers   uint32

	now      time.Duration
	busy     []*queuePair // to be worked on in this Progress call
	later    []*queuePair // to be worked on in the next
	stalls   []*stall     // links without room, and the queue pairs that wait for it
	broken   []*queuePair // to be moved to ERR before Progress ends
	timers   timerHeap
	owed     owings
	dirtyCQs []*completionQueue
	domains  []*xrcDomain            // domains that belong to a file
	xrcSRQs  map[uint32]*sharedQueue // by number
	lastSRQN uint32
	lastWQE  []*queuePair // get LAST_WQE_REACHED when Progress ends
	held     *guard       // the guard this engine is inside
	parked   int          // packets parked behind jobs, of all queue pairs, in parkedUnits
	lostWC   verbs.WC     // discards completions for a dead queue
	scratch  scratch

	// Hooks of the connection manager. All are called during Progress (or in an exclusive
	// section) and must neither block nor call exclusive. onMAD receives a management datagram
	// that is valid during the call. onRefused gets the path and the beginning of a packet that met no socket.
	// onProgress runs the manager's timers and returns the time of its next call (0: never). onCommEst reports that a queue pair received its first packet.
	onMAD      func(now time.Duration, src wire.Path, mad []byte)
	onProgress func(now time.Duration) (next time.Duration)
	onRefused  func(path *wire.Path, quoted []byte)
	onCommEst  func(q *queuePair)

	cm *deviceCM // cm_device.go
}

var _ fabric.Endpoint = (*device)(nil)

// guidPrefix begins the GUIDs of software devices: locally administered.
const guidPrefix = 0x02_53_6f_66_74 // 02 "Soft"

func newDevice(p *Provider, c DeviceConfig, index int) *device {
	d := &device{provider: p, cfg: c, index: index, gid: verbs.GIDFromAddr(c.Addr), random: p.fab.Rand()}
	d.guid = guidPrefix<<24 | uint64(binary.BigEndian.Uint32(d.gid[12:])&0xffffff)
	d.gids.init(d.gid)
	d.scratch.init()
	d.disk = newDiskWork(p.fab.Virtual())
	d.startCM(p.cmConfig)
	return d
}

func (d *device) info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: d.cfg.Name, GUID: d.guid, Addr: []netip.Addr{d.cfg.Addr}, AnyAddr: d.cfg.Link == LinkPeers, QuickControl: true, Node: -1}
}

// attach joins the fabric. The caller holds Provider.opening.
func (d *device) attach() error {
	d.findGIDs()
	p, err := d.provider.fab.Attach(d.gid, d.cfg.Name, d)
	if err != nil {
		return err
	}
	switch d.cfg.Link {
	case LinkPeers:
		d.link.Store(roce.OpenPeers(p, d.cfg.Name, d.pay))
	case LinkRoCE:
		l, err := roce.Open(p, d.cfg.Name, d.pay)
		if err != nil {
			p.Detach()
			return err
		}
		d.link.Store(l)
	}
	d.port.Store(p)
	p.Exclusive(func() { // packets that came earlier wait in the inbox
		p.SetDown(d.down.Load())
		d.p = p
	})
	return nil
}

// detach leaves the fabric, unless remove has done so. The device has no objects. The caller
// holds Provider.opening.
func (d *device) detach() {
	p := d.port.Load()
	p.Exclusive(func() {
		d.counters.Overflow += p.Overflow()
		d.p = nil
		d.empty()
	})
	d.port.Store(nil)
	if d.dialer.Swap(nil) != nil {
		d.withdrawLID()
	}
	if l := d.link.Swap(nil); l != nil {
		_ = l.Close() // a socket without users closes without an error
	}
	p.Detach()
}

// empty releases all memory that grew while the device was open. The engine does not run any
// more, so TIMEWAIT ends here: packets in flight no longer find the device, and a reopened device
// answers packets of its old connections like those of unknown ones. The counters and the numbers
// that rest stay.
func (d *device) empty() {
	d.cm.machine.Reset()
	d.timers, d.busy, d.later, d.stalls = nil, nil, nil, nil
	d.broken, d.lastWQE, d.dirtyCQs = nil, nil, nil
	d.qps, d.keys, d.ahs, d.freeAHs = keyTable{}, keyTable{}, nil, nil
	d.freeSlots, d.usedSlots = nil, 0
	d.groups, d.xrcSRQs, d.cm.byQP = nil, nil, map[*queuePair]*cmID{}
}

// exclusive runs fn with the port's token, so that the engine is not running, and then runs the
// engine. It waits for a running Progress call. Do not call it during Progress or from fn.
func (d *device) exclusive(fn func()) {
	if p := d.port.Load(); p != nil {
		p.Exclusive(fn)
		return
	}
	// The device is not open, so no other goroutine has an object of it.
	fn()
}

// kick runs the engine after work was left for it.
func (d *device) kick() {
	if p := d.port.Load(); p != nil {
		p.Kick()
	}
}

// kickFor is kick after requests were posted to q; q may be nil. If the engine is idle, the
// caller runs it and puts q on its work list directly, without the doorbell list.
func (d *device) kickFor(q *queuePair) {
	p := d.port.Load()
	if p == nil {
		return
	}
	if q != nil {
		if p.Enter() {
			// Check again with the token held: after it has left the fabric, the device no longer
			// belongs to the old port (detach waits for the token).
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

// nextNumber returns an object number for messages.
func (d *device) nextNumber() uint32 {
	d.numbers++
	return d.numbers
}

// draw returns n random bits, at most 32.
func (d *device) draw(n uint) (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(d.random, b[:]); err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b[:]) >> (32 - n), nil
}
