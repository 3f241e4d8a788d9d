package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Tally is what became of the operations of one kind.
type Tally struct {
	OK          int           `json:"ok"`
	OKSinceMark int           `json:"ok_since_mark"` // of those, ended while the mark stood
	Failed      map[Class]int `json:"failed,omitempty"`
	Example     string        `json:"example,omitempty"` // the first error's words
	LongestMS   int64         `json:"longest_ms"`        // from its beginning; of kinds that wait: 0
	SinceMarkMS int64         `json:"since_mark_ms"`     // the longest part of one that came after the mark
}

// Report is what a peer says at its end, as one line of JSON.
type Report struct {
	Device string          `json:"device"`
	Ops    map[Kind]*Tally `json:"ops"`
	Bounds Bounds          `json:"bounds"`

	// Departures are what the device did that the specification does not allow, and the
	// load has seen through: nothing of the runtime's.
	Departures map[Departure]int `json:"departures,omitempty"`

	// What must not be; each at most a handful.
	Late    []string `json:"late,omitempty"`    // ended after its bound
	Unknown []string `json:"unknown,omitempty"` // failed with an error of no type
	Corrupt []string `json:"corrupt,omitempty"` // data or answers that are wrong
	Open    []string `json:"open,omitempty"`    // operations that had not ended at the end
	Left    string   `json:"left,omitempty"`    // what was not given back: goroutines, descriptors, mappings, verbs objects
	Close   string   `json:"close,omitempty"`   // the error of closing the runtime

	// Removed tells that the device was taken away; then EndedMS and ClosedMS are
	// counted from when this process was told, else from when it was to stop:
	// until the last operation ended, and until the context was closed.
	Removed  bool  `json:"removed"`
	EndedMS  int64 `json:"ended_ms"`
	ClosedMS int64 `json:"closed_ms"`
}

// Bounds are those the operations were held to, in milliseconds.
type Bounds struct {
	OpMS    int64 `json:"op_ms"`    // of what a queue pair does
	RecvMS  int64 `json:"recv_ms"`  // of what waits for a peer that is gone
	DialMS  int64 `json:"dial_ms"`  // of connecting
	SlackMS int64 `json:"slack_ms"` // allowed beside each
}

// RemovalBound is what a process has from DEVICE_REMOVAL until everything has
// ended and its context is closed.
const RemovalBound = 5 * time.Second

// ErrBroken is matched by what [Report.Broken] returns.
var ErrBroken = errors.New("outage: an invariant is broken")

// Broken says which invariants do not hold; nil when all do. It blocks nothing.
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

// OK is how many operations of kind k succeeded.
func (r *Report) OK(k Kind) int {
	if t := r.Ops[k]; t != nil {
		return t.OK
	}
	return 0
}

// Failures is how many operations of all kinds failed with one of classes; of any
// class if none is named.
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
