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

// shard is a reactor and the event channel of its connections. In this file, the holder is the holder
// of the reactor's turn: the goroutine that runs the reactor.
type shard struct {
	rt *Runtime
	r  *reactor.Reactor
	cm verbs.CMChannel
	// node is the NUMA node of the reactor's memory, numbered from 1; 0 means any node. Immutable.
	node int
	domain
	// targets maps each identifier to its owner, which gets the identifier's events. Only the
	// holder uses the map.
	targets map[connID]cmTarget
	// unconfirmed has the accepting connections that wait for ESTABLISHED. Only the holder uses the map.
	unconfirmed map[verbs.QP]*Conn
	commands    commands
	closers
	rejections
	cmEvents, asyncEvents events
	sinkLeases            sinkLeases          // used by sinks; owned by the holder
	cmGone                bool                // the event channel is closed
	poolMu                memLock             // guards pools
	pools                 map[int][]*recvPool // by the size of their receives
	watch                 *removalWatch       // only in the first shard; nil if there is none
}

// connID identifies a connection, a listener or a lookup. It is an identifier of the connection
// manager, or a queue pair without an identifier (nocm_id.go).
type connID = verbs.Object

// cmTarget is the owner of a connection identifier.
type cmTarget interface {
	// onCM handles an event of the identifier, with the turn held. The event is acknowledged
	// before the call, so onCM may keep *ev.
	onCM(ev *verbs.CMEvent)
}

// newShard makes a shard. If it fails after it has made a reactor, it returns both the shard and the error, and
// Runtime.destroy closes the shard.
func newShard(rt *Runtime, node, vector int) (s *shard, err error) {
	s = &shard{rt: rt, node: node, poolMu: newMemLock(), targets: map[connID]cmTarget{}, unconfirmed: map[verbs.QP]*Conn{}, closers: newClosers(),
		commands: commands{off: !rt.cfg.stepped && !rt.dev.Device().QuickControl, most: commandsAtOnce()}}
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
	if s.domain, err = newDomain(rt); err != nil {
		return s, err
	}
	if s.cm, err = rt.provider.CreateCMChannel(); err != nil {
		return s, err
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
		return s, err
	}
	return s, werr
}

// takeCM handles one connection event. It returns false if there was no event, or if no event may be
// taken now, because too many rejections are pending. It acknowledges the event before it calls onCM,
// because onCM may close the event's identifier or move the identifier to another channel. Both fail
// while an event of the identifier is not acknowledged.
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

// takeAsync handles one asynchronous event of the device. It returns false if there was no event. Only
// the first shard takes asynchronous events, for all shards.
func (s *shard) takeAsync() bool {
	if s.cmGone { // the shard is closed, and the device will be closed next
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
		s.tellLastWQE(ev.QP)
	case verbs.EventCommEst:
		s.tellCommEst(ev.QP)
	case verbs.EventGIDChange:
		s.rt.addrsChanged()
	case verbs.EventCQErr:
		s.failAll(nil, fmt.Errorf("%w: %v", ErrQueuePair, ev.Type))
	}
	return true
}

// failAll fails the connection of the queue pair qp, or all connections if qp is nil. It searches all
// shards, because the first shard takes the device's events for all shards. The connections fail
// later, when each shard's holder runs the deferred functions.
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

// tellLastWQE calls onLastWQE for the connection of the queue pair qp, with the turn of this connection's reactor
// held.
func (s *shard) tellLastWQE(qp verbs.QP) {
	for _, sh := range s.rt.shards {
		sh.r.Defer(func() {
			if c := sh.sharing(qp); c != nil {
				c.onLastWQE()
			}
		})
	}
}

// sharing returns the connection of qp if it is one of the shard's with shared receives. When thousands of
// connections end, each is looked up, so sharing visits the shared receive queues, and not all connections.
// Holder only.
func (s *shard) sharing(qp verbs.QP) *Conn {
	s.rt.mu.Lock()
	defer s.rt.mu.Unlock()
	for shared := range s.rt.shared {
		if shared.sh != s {
			continue
		}
		if c := shared.conns[qp.Num()]; c != nil && c.q.QP() == qp {
			return c
		}
	}
	return nil
}

// settleIDs waits until each identifier that the shard is closing is closed, or has no tries left. If
// settleIDs fails, it may be called again.
func (s *shard) settleIDs(ctx context.Context) error {
	if s.cm == nil {
		return nil
	}
	for {
		var busy bool
		err := s.r.Do(ctx, func() { busy = s.closeLeft() })
		if errors.Is(err, reactor.ErrClosed) {
			return nil // an earlier call has closed the reactor
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

// closeLeft makes one last try to close each identifier that is not closed yet, with the turn held. If
// goroutines are closing identifiers, it makes no try. It returns true if settleIDs must wait and
// then call closeLeft again. Holder only.
func (s *shard) closeLeft() (busy bool) {
	s.ending = true
	if s.running > 0 || s.rejecting {
		return true
	}
	for _, c := range s.closing {
		c.tries = 1
		s.tryClose(c)
	}
	return len(s.closing) > 0 && !s.rt.cfg.stepped // a stepped runtime makes no progress while its caller waits
}

// shard.close closes the shard. Before that, settleIDs must have succeeded on every shard. If close
// fails, it may be called again.
func (s *shard) close(ctx context.Context) error {
	if s.cm != nil {
		var left error // set with the turn held; if Do fails, perhaps set after Do has returned
		switch err := s.r.Do(ctx, func() { left = s.closeCM() }); {
		case errors.Is(err, reactor.ErrClosed): // an earlier call has closed the reactor
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

// closeCM closes the shard's event channel. If closeCM fails, it may be called again. Holder only.
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
