package main

import (
	"context"
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/internal/sys"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	pathRounds = 200 // of each step
	pollsEach  = 100 // empty polls of one measurement
	writeSize  = 64

	eventToGoroutine = "event to goroutine: the difference of the medians"
)

// dataPath times the steps that a message is made of, on two queue pairs without the runtime.
func (b *bench) dataPath(ctx context.Context) []Times {
	steps := [...]*timer{newTimer("empty poll"), newTimer("doorbell: ibv_post_send of one WRITE of 64 bytes"),
		newTimer("WRITE of 64 bytes, its completion polled for"), newTimer("WRITE of 64 bytes, its completion wakes a goroutine"),
		newTimer(eventToGoroutine)}
	flush := newTimer("flush: 64 receives, from ERR to the last completion")
	x, y, err := pairOf(b, defaultEnd.Timeout, defaultEnd.RetryCnt)
	if err != nil {
		for _, t := range steps {
			t.err = err
		}
	} else {
		x.steps(ctx, y, steps)
		if err := errors.Join(x.close(), y.close()); err != nil {
			steps[0].err = errors.Join(steps[0].err, err)
		}
	}
	b.flushes(ctx, flush)
	rows := []Times{flush.times()}
	for _, t := range steps[:len(steps)-1] {
		rows = append(rows, t.times())
	}
	polled, woken, diff := rows[3], rows[4], Times{Call: steps[4].call}
	switch {
	case polled.Unknown != "" || woken.Unknown != "":
		diff.Unknown = "one of the two is unknown"
	case woken.Median < polled.Median:
		diff.Unknown = "polling took longer: the goroutine that polls and the device's work share a processor"
	default:
		diff.N, diff.Median = woken.N, woken.Median-polled.Median
	}
	return append(rows, diff)
}

// steps times them in the order of the array in dataPath.
func (s *side) steps(ctx context.Context, y *side, to [5]*timer) {
	for range pathRounds {
		began := time.Now()
		for range pollsEach {
			if _, err := s.poll(); err != nil {
				to[0].err = err
				return
			}
		}
		to[0].took = append(to[0].took, time.Since(began)/pollsEach)
		if ctx.Err() != nil {
			return
		}
		s.prepare(y, writeSize, verbs.SendSignaled)
		began = time.Now()
		to[1].time(s.post)
		to[2].took = append(to[2].took, 0)
		if to[1].failed() {
			to[2].err = to[1].err
			return
		}
		wc, err := s.until(ctx, y, 1, false)
		to[2].took[len(to[2].took)-1] = time.Since(began)
		if to[2].err = asError(wc, err); to[2].failed() {
			return
		}
	}
	s.wakeUps(ctx, y, to[3])
}

// asError is the error of a completion.
func asError(wc verbs.WC, err error) error {
	if err == nil && wc.Status != verbs.WCSuccess {
		err = errors.New(wc.Status.String())
	}
	return err
}

// wakeUps times WRITEs whose completion makes an event, which wakes this goroutine as it wakes a
// reactor's.
func (s *side) wakeUps(ctx context.Context, y *side, to *timer) {
	p, err := sys.NewPoller()
	if err != nil {
		to.err = err
		return
	}
	defer func() { to.err = errors.Join(to.err, p.Close()) }()
	if to.err = p.Attach(s.ch, 0); to.err != nil {
		return
	}
	// The other side's work, if it is this process that does it (see side.until), is done by a goroutine.
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = y.poll()
				time.Sleep(pollPause)
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	keys := make([]uint32, 1)
	for range pathRounds {
		if ctx.Err() != nil || to.failed() {
			break
		}
		if to.err = verbs.Arm(s.cq, false); to.failed() {
			break
		}
		s.prepare(y, writeSize, verbs.SendSignaled)
		to.time(func() error {
			if err := s.post(); err != nil {
				return err
			}
			for {
				deadline, _ := ctx.Deadline()
				if _, err := p.Wait(deadline, keys); err != nil {
					return err
				}
				cq, ok, err := s.ch.GetEvent()
				if err != nil || ok {
					if ok {
						cq.AckEvents(1)
					}
					return err
				}
				if ctx.Err() != nil {
					return errCut
				}
			}
		})
		if !to.failed() {
			wc, err := s.until(ctx, nil, 1, false)
			to.err = asError(wc, err)
		}
	}
	to.err = errors.Join(to.err, p.Detach(0))
}

// flushes times how long a queue pair takes to flush its receives. It need not be connected.
func (b *bench) flushes(ctx context.Context, to *timer) {
	s, err := newSide(b, b.ends[0], defaultEnd.Timeout, defaultEnd.RetryCnt)
	if err != nil {
		to.err = err
		return
	}
	for range rounds {
		if ctx.Err() != nil || to.failed() {
			break
		}
		if to.err = s.receive(); to.failed() {
			break
		}
		to.time(func() error {
			if err := s.qp.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState); err != nil {
				return err
			}
			wait, cancel := context.WithTimeout(ctx, time.Second) // the runtime waits no longer (flushBound)
			defer cancel()
			_, err := s.until(wait, nil, labDepth, false)
			if errors.Is(err, errCut) {
				err = errors.New("a queue pair in ERR did not flush its receives within 1 s")
			}
			return err
		})
		if to.failed() {
			break
		}
		if to.err = s.qp.Close(); !to.failed() {
			to.err = s.newQP()
		}
	}
	to.err = errors.Join(to.err, s.close())
}
