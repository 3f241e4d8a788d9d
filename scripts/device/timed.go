package main

import (
	"slices"
	"time"
)

// timer times one call many times. It stops at the first failure.
type timer struct {
	call string
	took []time.Duration
	err  error
}

func newTimer(call string) *timer { return &timer{call: call} }

// time makes the call, unless it has failed before.
func (t *timer) time(f func() error) {
	if t.err != nil {
		return
	}
	began := time.Now()
	t.err = f()
	t.took = append(t.took, time.Since(began))
}

func (t *timer) failed() bool { return t.err != nil }

// times are the times of the calls that did not fail.
func (t *timer) times() Times {
	took := t.took
	if t.err != nil && len(took) > 0 {
		took = took[:len(took)-1]
	}
	r := timesOf(t.call, took)
	switch {
	case t.err != nil:
		r.Unknown = t.err.Error()
	case len(took) == 0:
		r.Unknown = errCut.Error()
	}
	return r
}

// forP99 is how many calls have a 99th percentile that is not simply the slowest of them.
const forP99 = 100

// timesOf sorts the durations.
func timesOf(call string, took []time.Duration) Times {
	r := Times{Call: call, N: len(took)}
	if len(took) > 0 {
		slices.Sort(took)
		r.Median, r.Max = took[len(took)/2], took[len(took)-1]
	}
	if len(took) >= forP99 {
		r.P99 = took[(len(took)*99+99)/100-1] // by nearest rank
	}
	return r
}

// timers are the timers of a sequence of calls, in the order of their first call.
type timers []*timer

// of returns the timer of a call.
func (ts *timers) of(call string) *timer {
	for _, t := range *ts {
		if t.call == call {
			return t
		}
	}
	*ts = append(*ts, newTimer(call))
	return (*ts)[len(*ts)-1]
}

func (ts timers) times() (rows []Times) {
	for _, t := range ts {
		rows = append(rows, t.times())
	}
	return rows
}
