package outage

import (
	"maps"
	"time"
)

// unended says what has not ended.
func (l *ledger) unended() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.open {
		note(&list, "%s since %v, bound %v", e.kind, time.Since(e.began).Round(time.Millisecond), e.bound)
	}
	return list
}

// last is when the last operation ended.
func (l *ledger) last() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastEnd
}

// fill puts what was recorded into a report, which then shares nothing with l.
func (l *ledger) fill(r *Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Ops = map[Kind]*Tally{}
	for k, t := range l.kinds {
		c := *t
		c.Failed = maps.Clone(t.Failed)
		r.Ops[k] = &c
	}
	r.Departures = maps.Clone(l.departed)
	r.Late, r.Unknown, r.Corrupt = l.findings.late, l.findings.unknown, l.findings.corrupt
}
