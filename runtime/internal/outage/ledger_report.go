package outage

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// unended lists the operations that have not ended, the oldest first.
func (l *ledger) unended() (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, op := range slices.Sorted(maps.Keys(l.open)) {
		e := l.open[op]
		list = append(list, fmt.Sprintf("%s since %v, bound %v", e.kind, time.Since(e.began).Round(time.Millisecond), e.bound))
	}
	return list
}

// last returns the end time of the operation that ended last.
func (l *ledger) last() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastEnd
}

// fill copies the records into the report r.
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
