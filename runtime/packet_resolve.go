package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/futures"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Resolve asks the PacketConn that listens at "host:port" for its queue pair, and returns that
// queue pair as a Peer. If the host has several addresses, each is tried, as Dial does. Resolve waits for the answer until ctx ends, but at most Config.ConnectTimeout.
//
// Errors: ErrAddress; ErrUnreachable; ErrConnectTimeout; a *RejectError if the peer refuses; the
// cause if p has ended (see Err); the error of the context; errors of the device.
//
// Implements: rdma_connect in port space UDP.
func (p *PacketConn) Resolve(ctx context.Context, addr string) (*Peer, error) {
	asked, err := reactor.Unended(ctx)
	if err != nil {
		return nil, err
	}
	ways, err := p.rt.destinations(ctx, addr)
	if err != nil {
		return nil, err
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	r := &resolving{p: p, ways: ways}
	var f futures.Future[*Peer]
	r.promise, f = p.rt.peers.New(nil)
	p.sh.r.Defer(r.start)
	e, err := f.Await(asked)
	if err != nil && f.Valid() {
		f.Discard()
		p.sh.r.Defer(func() { r.end(nil, err) })
		return nil, fmt.Errorf("resolving %s: %w", addr, asked.Cause(ctx, err))
	}
	return e, err
}

// resolving is the lookup of a peer's queue pair for one call of Resolve. Only the holder of the turn
// uses it.
//
//	start ──> lookUp ── ADDR_RESOLVED ──> ROUTE_RESOLVED ──> ESTABLISHED ──> end
//	            ^  └─ not reached, or no listener: the next address ─┐
//	            └────────────────────────────────────────────────────┘ none left, or the PacketConn ends ──> end
type resolving struct {
	p       *PacketConn
	id      verbs.CMID
	ways    []addrResolver // to the addresses of the peer that are not tried yet; the first is looked up
	failed  error          // of the first address of all; nil: it has not failed
	until   time.Time      // the end of all
	timer   *reactor.Timer
	promise futures.Promise[*Peer]
	done    bool
}

func (r *resolving) start() {
	if err := r.p.Err(); err != nil {
		r.end(nil, err)
		return
	}
	r.p.asking[r] = struct{}{}
	r.until = r.p.rt.cfg.now().Add(r.p.rt.cfg.ConnectTimeout)
	r.lookUp()
}

// lookUp begins to resolve the first of the addresses.
func (r *resolving) lookUp() {
	limit := partOf(max(r.until.Sub(r.p.rt.cfg.now()), 0), len(r.ways))
	bound, what := limit, "a part of Config.ConnectTimeout"
	if len(r.ways) == 1 {
		bound, what = r.p.rt.cfg.ConnectTimeout, "Config.ConnectTimeout"
	}
	r.p.sh.r.StopTimer(r.timer)
	r.timer = r.p.sh.r.After(limit, func() {
		r.elsewhere(fmt.Errorf("%w: %v, longer than %v (%s)", ErrConnectTimeout, r.ways[0].dst, bound, what))
	})
	id, err := r.p.sh.cm.CreateID(verbs.PSUDP, 0)
	if err != nil {
		r.end(nil, err)
		return
	}
	r.id = id
	r.p.sh.targets[id] = r
	if tos := r.p.opts.TOS; tos != 0 {
		err = id.SetTOS(tos)
	}
	if err == nil {
		err = r.ways[0].ask(id)
		if _, system := r.p.rt.dev.(verbs.Addresser); system && err != nil && !errors.Is(err, verbs.ErrDeviceRemoved) {
			err = r.p.rt.unreached(r.ways[0].dst, err)
		}
	}
	if err != nil {
		r.elsewhere(err)
	}
}

// elsewhere goes on with the next address of the peer, because of err, with which the lookup of the first has ended.
// Without another one it ends the lookup.
func (r *resolving) elsewhere(err error) {
	if r.done || !ofAddress(err) {
		r.end(nil, err)
		return
	}
	if r.failed == nil {
		r.failed = err
	}
	if len(r.ways) == 1 {
		r.end(nil, r.failed)
		return
	}
	r.ways = r.ways[1:]
	r.p.sh.closeID(r.id, nil)
	r.id = nil
	r.lookUp()
}

// sidrReject is the status in the answer of a listener that rejects the lookup (IBTA table 118).
const sidrReject = 2

// onCM implements cmTarget.
func (r *resolving) onCM(ev *verbs.CMEvent) {
	var err error
	switch ev.Type {
	case verbs.CMAddrResolved:
		if d := ev.ID.Device(); d != r.p.rt.dev.Device().Name || r.id.Port() != r.p.port {
			r.elsewhere(r.p.rt.unreached(r.ways[0].dst, fmt.Errorf("it is reached through device %s, port %d", d, r.id.Port())))
			return
		}
		err = r.id.ResolveRoute(r.p.rt.cfg.ConnectTimeout)
	case verbs.CMRouteResolved:
		err = r.id.Connect(&verbs.ConnParam{})
	case verbs.CMEstablished:
		e, perr := r.p.newPeer(&ev.UD.AH, ev.UD.QPNum, ev.UD.QKey, nil)
		r.end(e, perr)
	case verbs.CMDeviceRemoval:
		err = verbs.ErrDeviceRemoved
	case verbs.CMUnreachable:
		if ev.Status == sidrReject {
			err = refusal(r.ways[0].dst, verbs.RejConsumer, ev.UD.PrivateData)
			break
		}
		fallthrough
	default:
		way := &r.ways[0]
		if !r.done && way.isTimeout(ev) && !way.slow(len(r.ways) > 1) {
			err = way.ask(r.id)
			break
		}
		err = fmt.Errorf("%w (%w)", eventError(ev.Type), statusError(ev.Status))
		if ev.Type == verbs.CMAddrError || ev.Type == verbs.CMRouteError {
			err = r.p.rt.unreached(way.dst, err)
		} else {
			err = fmt.Errorf("%w: %v: %w", ErrUnreachable, way.dst, err)
		}
		r.elsewhere(err)
		return
	}
	if err != nil {
		r.end(nil, err)
	}
}

// resolving.end ends the lookup and settles its future. A second call does nothing.
func (r *resolving) end(e *Peer, err error) {
	if r.done {
		return
	}
	r.done = true
	delete(r.p.asking, r)
	if r.timer != nil {
		r.p.sh.r.StopTimer(r.timer)
	}
	err = r.p.rt.asRemoved(err)
	settle := func(error) { r.promise.Settle(e, err) }
	if r.id == nil {
		settle(nil)
		return
	}
	r.p.sh.closeID(r.id, settle)
}
