package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/runtime/internal/proto"
	"github.com/verbena-rdma/verbena/verbs"
)

// shard is a reactor with its connection events. Only the holder of the turn accesses its maps.
type shard struct {
	rt *Runtime
	r  *reactor.Reactor
	cm verbs.CMChannel
	// node is the NUMA node of its memory, counted from 1; 0: anywhere. Immutable.
	node int
	domain
	// targets get the events of the identifiers they own.
	targets map[connID]cmTarget
	closers
	rejections
	cmEvents, asyncEvents events
	sinkLeases            sinkLeases    // for sinks; owned by the holder
	cmGone                bool          // the channel is closed
	watch                 *removalWatch // of the first shard; nil for none
}

// connID is the device object of a connection, listener or lookup: an identifier
// of the connection manager, or a queue pair without one (nocm_id.go).
type connID = verbs.Object

// cmTarget is the owner of a connection identifier.
type cmTarget interface {
	// onCM handles an event, holding the turn. It may keep the event, which
	// is already acknowledged.
	onCM(ev *verbs.CMEvent)
}

func newShard(rt *Runtime, node, vector int) (_ *shard, err error) {
	s := &shard{rt: rt, node: node, targets: map[connID]cmTarget{}, closers: newClosers()}
	var now func() time.Time // nil: the system clock
	if rt.cfg.stepped {
		now = rt.cfg.now
	}
	s.r, err = reactor.New(reactor.Config{
		Context: rt.dev, CQEntries: rt.cfg.CQEntries, Spin: rt.cfg.Spin, Policy: rt.cfg.Policy, Node: node, CompVector: vector,
		FlushDelay: rt.cfg.FlushDelay, FlushBatch: rt.cfg.FlushBatch, NoCallerDriving: rt.cfg.NoCallerDriving, Stepped: rt.cfg.stepped, Now: now,
		OnPanic: rt.cfg.OnPanic,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end(context.Background()))
		}
	}()
	if s.domain, err = newDomain(rt); err != nil {
		return nil, err
	}
	if s.cm, err = rt.provider.CreateCMChannel(); err != nil {
		return nil, err
	}
	s.cmEvents, s.asyncEvents = events{r: s.r, next: s.takeCM}, events{r: s.r, next: s.takeAsync}
	var werr error
	if err = s.r.Do(context.Background(), func() {
		if werr = s.r.Watch(s.cm, s.cmEvents.take); werr == nil && len(rt.shards) == 0 {
			if werr = s.r.Watch(rt.dev.Async(), s.asyncEvents.take); werr == nil {
				werr = s.watchRemoval()
			}
		}
	}); err != nil {
		return nil, err
	}
	return s, werr
}

// takeCM handles a connection event, and reports whether there was one. It acknowledges
// the event first, so that the handler may move or close the event's identifier.
func (s *shard) takeCM() bool {
	if s.cmGone || s.tooManyRejections() {
		return false
	}
	ev, ok, err := s.cm.GetEvent()
	if err != nil {
		s.r.SuspendSource(s.cm)
	}
	if err != nil || !ok {
		return false
	}
	ev.Conn.PrivateData, ev.UD.PrivateData = bytes.Clone(ev.Conn.PrivateData), bytes.Clone(ev.UD.PrivateData)
	s.cm.Ack(ev)
	id := ev.ID
	if ev.Type == verbs.CMConnectRequest {
		id = ev.ListenID
	}
	if t := s.targets[id]; t != nil {
		t.onCM(&ev)
	} else if ev.Type == verbs.CMConnectRequest {
		s.reject(ev.ID, proto.RejectClosed, listenerClosed)
	}
	return true
}

// takeAsync handles an asynchronous event of the device. A failed queue pair also shows
// in its completions; only the device's removal must be reported to all connections.
func (s *shard) takeAsync() bool {
	if s.cmGone { // the device is being closed too
		return false
	}
	ev, ok, err := s.rt.dev.Async().Get()
	if err != nil {
		s.r.SuspendSource(s.rt.dev.Async())
	}
	if err != nil || !ok {
		return false
	}
	s.rt.dev.Async().Ack(ev)
	s.tellWatchers(&ev)
	switch ev.Type {
	case verbs.EventDeviceFatal:
		s.rt.deviceGone()
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
		s.failAll(ev.QP, fmt.Errorf("%w: %v", ErrQueuePair, ev.Type))
	case verbs.EventQPLastWQEReached:
		s.tellConn(ev.QP, (*Conn).onLastWQE)
	case verbs.EventCQErr:
		s.failAll(nil, fmt.Errorf("%w: %v", ErrQueuePair, ev.Type))
	}
	return true
}

// failAll fails the connection of qp, or all connections if qp is nil. It asks every
// shard, because the first shard gets all events of the device.
func (s *shard) failAll(qp verbs.QP, cause error) {
	for _, sh := range s.rt.shards {
		sh.r.Defer(func() {
			for _, id := range sh.ordered() {
				if c, ok := sh.targets[id].(*Conn); ok && (qp == nil || c.q.QP() == qp) {
					c.fail(cause)
				}
			}
		})
	}
}

// tellConn calls fn for the connection of qp, on its shard.
func (s *shard) tellConn(qp verbs.QP, fn func(*Conn)) {
	for _, sh := range s.rt.shards {
		sh.r.Defer(func() {
			for _, t := range sh.targets {
				if c, ok := t.(*Conn); ok && c.q.QP() == qp {
					fn(c)
					return
				}
			}
		})
	}
}

// end calls settleIDs and close. It is for a shard that failed to start.
func (s *shard) end(ctx context.Context) error {
	if err := s.settleIDs(ctx); err != nil {
		return err
	}
	return s.close(ctx)
}

// settleIDs waits until no identifier of the shard is being closed. It may be repeated.
func (s *shard) settleIDs(ctx context.Context) error {
	if s.cm == nil {
		return nil
	}
	for {
		var busy bool
		err := s.r.Do(ctx, func() { busy = s.closeLeft() })
		if errors.Is(err, reactor.ErrClosed) {
			return nil // closed by an earlier call
		}
		if err != nil || !busy {
			return err
		}
		select {
		case <-s.quiet:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// closeLeft starts the last try for each identifier that is not closed yet,
// and reports whether some are still being closed. Holder only.
func (s *shard) closeLeft() (busy bool) {
	s.ending = true
	if s.running > 0 || s.rejecting {
		return true
	}
	for _, c := range s.closing {
		c.tries = 1
		s.tryClose(c)
	}
	return len(s.closing) > 0 && !s.rt.cfg.stepped // stepped: only the caller makes progress
}

// close closes the shard, after settleIDs has succeeded on every shard.
func (s *shard) close(ctx context.Context) error {
	if s.cm != nil {
		var left error // set under the turn, possibly after ctx has ended
		switch err := s.r.Do(ctx, func() { left = s.closeCM() }); {
		case errors.Is(err, reactor.ErrClosed): // closed by an earlier call
		case err != nil:
			return err
		case left != nil:
			return left
		}
	}
	if s.r != nil {
		if err := s.r.Close(ctx); err != nil {
			return err
		}
	}
	return s.domain.close()
}

// closeCM closes the shard's event channel. Holder only; it may be repeated.
func (s *shard) closeCM() error {
	if s.cmGone {
		return nil
	}
	if err := errors.Join(s.r.Unwatch(s.cm), s.r.Unwatch(s.rt.dev.Async())); err != nil {
		return err
	}
	s.cmEvents.takeAll()
	err := s.unwatchRemoval()
	if err == nil {
		err = s.cm.Close()
	}
	s.cmGone = err == nil
	return err
}
