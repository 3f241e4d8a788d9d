package reactor_test

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

const (
	// stormStill is how long a lane must stand still to count as stopped by a loss.
	// Nothing is wrong with a slow machine that looks like it: this shows what the
	// storm sees, and not that there is nothing to see.
	stormStill = 300 * time.Millisecond
	// stormWarm is how many tokens arrive before anything is lost.
	stormWarm = 50
	// stormRecheck is when a crowd is looked at, so that it need not be waited for long.
	stormRecheck = 40 * time.Millisecond
)

// Rule: the storm sees what it is there for. In every mode an event that is lost now and
// then, of the sends or of the receives, stops a lane or is counted as missed; and so
// does a completion from before arming that nobody polls for, where nothing else polls.
func TestTheStormSeesWhatIsLost(t *testing.T) {
	onlySoft(t, "it is about the test, and there all is quick")
	for _, m := range stormModes {
		losses := map[string]uint32{"events of sends": loseSendEvents, "events of receives": loseRecvEvents}
		if m.volleys == 1 {
			losses["polls after arming"] = loseRepolls
		} else {
			m.cfg.Recheck = stormRecheck
		}
		for name, loss := range losses {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				l := newLane(t, slowBed(t), m, rand.NewPCG(uint64(time.Now().UnixNano()), uint64(loss)))
				l.start(t)
				for l.hops.Load() < stormWarm && !l.stalled() {
					runtime.Gosched()
				}
				l.loss.Store(loss)
				if !l.shows(t) {
					t.Errorf("%d tokens went on their way for %v, and nobody noticed", l.hops.Load(), patience)
				}
				l.loss.Store(0)
				l.revive(t)
				l.end(t)
				l.close(t)
			})
		}
	}
}

// shows tells whether the lane stands still, or counts missed events, within patience.
func (l *lane) shows(t *testing.T) bool {
	look := time.NewTicker(stormRecheck)
	defer look.Stop()
	for began := time.Now(); time.Since(began) < patience; {
		<-look.C
		if l.stalled(); time.Since(l.seenAt) > stormStill {
			return true
		}
		if l.mode.cfg.Recheck < 0 {
			continue // reading Stats takes the turn, and that polls
		}
		for _, s := range l.sides {
			if s.ends[0].r.Stats().Missed > 0 {
				return true
			}
		}
	}
	return false
}

// revive takes the volleys out of a lane whose reactors believe that queues are armed
// which are not: they are made to poll until none is left, and until who sent the last
// one has its completion: the event of that may be the one that was lost.
func (l *lane) revive(t *testing.T) {
	l.stop.Store(true)
	for began := time.Now(); time.Since(began) < patience; {
		select {
		case <-l.gone:
			if l.done.Load() >= l.sent.Load() {
				return
			}
		default:
		}
		for _, s := range l.sides {
			e := s.ends[0]
			e.do(t, e.r.Flush)
		}
	}
}
