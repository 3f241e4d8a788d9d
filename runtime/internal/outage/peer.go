package outage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	verbena "github.com/verbena-rdma/verbena/runtime"
	uatomic "go.uber.org/atomic"

	"github.com/verbena-rdma/verbena/verbs"
)

// Peer is one process of the load.
//
//	           Open                 Stop, or the device removed
//	(nothing) ──────> under load ──────────────────────────────> closed
//
// Its methods may be called from any goroutine.
type Peer struct {
	cfg    Config
	rt     *verbena.Runtime
	ledger *ledger
	memory *verbena.Region // the served region
	packet *verbena.PacketConn

	listeners []*verbena.Listener
	plain     *net.TCPListener // for connections without a connection manager; nil for none
	// run ends when the load is to stop.
	run    context.Context
	finish context.CancelFunc
	all    sync.WaitGroup // every goroutine of the load
	work   sync.WaitGroup // the goroutines that do rounds; they end early if Config.Work is set

	wanted    int32         // number of connections to dial; written before the first is dialed
	lines     sync.Mutex    // serializes writes to Config.Out
	connected atomic.Int32  // connections made by dialing; at wanted and 2*wanted a line is printed
	nextArea  atomic.Uint32 // incremented by every dialed connection
	stages    stages        // for State

	endOnce   sync.Once
	removedAt uatomic.Time  // the time of the first report of the device's removal; zero before
	gone      chan struct{} // closed by removed
}

// Open opens the device and starts the load. It blocks until the device is open, but does not wait
// for the other peer. The caller calls Stop.
//
// Errors: those of the configuration and of the runtime.
func Open(cfg Config) (_ *Peer, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Peer{cfg: cfg, ledger: newLedger(cfg.Bounds.Slack), gone: make(chan struct{})}
	if p.rt, err = verbena.Open(cfg.Runtime); err != nil {
		return nil, err
	}
	p.run, p.finish = context.WithCancel(context.Background())
	if err := p.start(); err != nil {
		p.finish()
		p.hangUp()
		p.all.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		return nil, errors.Join(err, p.rt.Close(ctx))
	}
	return p, nil
}

func (p *Peer) start() (err error) {
	p.rt.WatchDevice(func(ev verbena.DeviceEvent) {
		if ev.Type == verbs.EventDeviceFatal {
			p.removed()
		}
	})
	if p.cfg.Serve.IsValid() {
		if err := p.serve(); err != nil {
			return err
		}
	}
	if p.cfg.Plain.IsValid() {
		if err := p.servePlain(); err != nil {
			return err
		}
	}
	if err := p.listenPacket(); err != nil {
		return err
	}
	p.say("ready")
	var dialled []Role
	if p.cfg.Dial.IsValid() {
		dialled = append(dialled, roles...)
	}
	if p.cfg.DialPlain.IsValid() {
		dialled = append(dialled, RolePlain)
	}
	p.wanted = int32(len(dialled) * p.cfg.Conns)
	for _, role := range dialled {
		for i := range p.cfg.Conns {
			p.working(func() { p.dialLoop(role, i) })
		}
	}
	if p.cfg.Dial.IsValid() {
		p.working(p.sendDatagrams)
	}
	p.all.Go(func() {
		if p.work.Wait(); len(dialled) > 0 && p.run.Err() == nil {
			p.say("worked")
		}
	})
	return nil
}

// working runs f, a part of the load that does rounds, on its own goroutine.
func (p *Peer) working(f func()) {
	p.work.Add(1)
	p.all.Go(func() { defer p.work.Done(); f() })
}

// listenPacket opens the datagram connection, unless the peer only has connections without a
// connection manager.
func (p *Peer) listenPacket() (err error) {
	at := ":0"
	switch {
	case p.cfg.Serve.IsValid():
		at = port(p.cfg.Serve, packetPort).String()
	case !p.cfg.Dial.IsValid():
		return nil
	}
	if p.packet, err = p.rt.ListenPacket(at, verbena.Options{}); err != nil {
		return fmt.Errorf("datagrams: %w", err)
	}
	p.all.Go(p.takeDatagrams)
	return nil
}

// port returns base with its port raised by offset.
func port(base netip.AddrPort, offset uint16) netip.AddrPort {
	return netip.AddrPortFrom(base.Addr(), base.Port()+offset)
}

// say prints a milestone.
func (p *Peer) say(line string) {
	p.lines.Lock()
	defer p.lines.Unlock()
	fmt.Fprintln(p.cfg.Out, line)
}

// Mark records that the other peer is gone now: from now on operations that wait for its program
// have a bound, too. The line "ended" is printed when all connections of now, and all operations
// outstanding now, except those without a bound, have ended. Mark does not wait for that.
func (p *Peer) Mark() { p.ledger.setMark(func() { p.say("ended") }) }

// Heal records that the other peer is back.
func (p *Peer) Heal() { p.ledger.clearMark() }

// Removed returns a channel that is closed when the device is known to be gone. The caller must
// then call Stop, because the kernel's removal of the device waits until this process has closed
// it.
func (p *Peer) Removed() <-chan struct{} { return p.gone }

// removed records the removal of the device and ends the load. Any goroutine may call it, including
// the holder of a turn.
func (p *Peer) removed() {
	p.endOnce.Do(func() {
		p.removedAt.Store(time.Now())
		p.finish()
		close(p.gone)
	})
}

// removal returns the time of the first report of the device's removal, if there was one.
func (p *Peer) removal() (time.Time, bool) {
	at := p.removedAt.Load()
	return at, !at.IsZero()
}

// over reports whether the load is over. If err reports that the device was removed, over records
// the removal, which ends the load.
func (p *Peer) over(err error) bool {
	if errors.Is(err, verbs.ErrDeviceRemoved) {
		p.removed()
	}
	return p.run.Err() != nil
}
