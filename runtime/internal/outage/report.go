package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Tally sums up the operations of one kind.
type Tally struct {
	OK          int           `json:"ok"`
	OKSinceMark int           `json:"ok_since_mark"` // of those in OK, ended while the mark was set
	Failed      map[Class]int `json:"failed,omitempty"`
	Example     string        `json:"example,omitempty"` // the text of the first error
	LongestMS   int64         `json:"longest_ms"`        // of one operation; 0 for kinds that wait
	SinceMarkMS int64         `json:"since_mark_ms"`     // the longest time of one after the mark
}

// Report is a peer's final report, one line of JSON.
type Report struct {
	Device string          `json:"device"`
	Ops    map[Kind]*Tally `json:"ops"`
	Bounds Bounds          `json:"bounds"`

	// Departures counts the recognized violations of the specification by the device. They are not
	// bugs of the runtime.
	Departures map[Departure]int `json:"departures,omitempty"`

	// Violations of the invariants; each list has at most a handful.
	Late    []string `json:"late,omitempty"`    // ended after the bound
	Unknown []string `json:"unknown,omitempty"` // failed with an error of no type
	Corrupt []string `json:"corrupt,omitempty"` // wrong data or answers
	Open    []string `json:"open,omitempty"`    // operations that had not ended at the end
	Left    string   `json:"left,omitempty"`    // leaks: goroutines, descriptors, mappings, verbs objects
	Close   string   `json:"close,omitempty"`   // the error of closing the runtime

	// Removed reports that the device was removed. EndedMS is the time in milliseconds until the
	// last operation ended, ClosedMS that until the device context was closed. Both count from the
	// first report of the removal, or without a removal from the start of Stop.
	Removed  bool  `json:"removed"`
	EndedMS  int64 `json:"ended_ms"`
	ClosedMS int64 `json:"closed_ms"`
}

// Bounds are the bounds of the operations, in milliseconds.
type Bounds struct {
	OpMS    int64 `json:"op_ms"`    // of operations of a queue pair
	RecvMS  int64 `json:"recv_ms"`  // of operations that wait for a peer that is gone
	DialMS  int64 `json:"dial_ms"`  // of connecting
	SlackMS int64 `json:"slack_ms"` // added to each
}

// RemovalBound is the longest allowed time from DEVICE_REMOVAL until all operations have ended and
// the device context is closed.
const RemovalBound = 5 * time.Second

// ErrBroken is the error that the errors of [Report.Broken] wrap.
var ErrBroken = errors.New("outage: an invariant is broken")

// Broken returns an error for each invariant that does not hold, joined, or nil if all hold. It
// does not block.
func (r *Report) Broken() error {
	var errs []error
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrBroken, fmt.Sprintf(format, args...)))
	}
	for what, list := range map[string][]string{
		"later than its bound": r.Late, "an error of no type": r.Unknown,
		"wrong data": r.Corrupt, "not ended": r.Open,
	} {
		for _, s := range list {
			say("%s: %s", what, s)
		}
	}
	if r.Left != "" {
		say("left behind: %s", r.Left)
	}
	if r.Close != "" {
		say("closing: %s", r.Close)
	}
	if r.Removed && time.Duration(r.ClosedMS)*time.Millisecond > RemovalBound {
		say("the context was closed %d ms after the removal, the bound is %v", r.ClosedMS, RemovalBound)
	}
	return errors.Join(errs...)
}

// OK returns the number of successful operations of kind k.
func (r *Report) OK(k Kind) int {
	if t := r.Ops[k]; t != nil {
		return t.OK
	}
	return 0
}

// Failures returns the number of operations, of all kinds, that failed with an error of one of the
// given classes. Without arguments it counts all failures.
func (r *Report) Failures(classes ...Class) (n int) {
	for _, t := range r.Ops {
		if len(classes) == 0 {
			for _, m := range t.Failed {
				n += m
			}
		}
		for _, c := range classes {
			n += t.Failed[c]
		}
	}
	return n
}

// WriteTo writes the report as one line.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	n, err := w.Write(append(b, '\n'))
	return int64(n), err
}
