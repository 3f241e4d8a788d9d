package outage

import (
	"fmt"
	"sync"
	"time"
)

// Kind is the kind of an operation in the report.
type Kind string

// Values of Kind. Kinds that wait for the peer's program are bounded only while the peer is known
// to be gone.
const (
	KindDial       Kind = "dial"
	KindAccept     Kind = "accept" // waits
	KindSend       Kind = "send"
	KindRecv       Kind = "recv" // waits
	KindEcho       Kind = "echo" // waits: the answer to a message
	KindWrite      Kind = "write"
	KindWriteImm   Kind = "write with immediate"
	KindRead       Kind = "read"
	KindAtomic     Kind = "atomic"
	KindBig        Kind = "big transfer"
	KindBind       Kind = "bind"
	KindInvalidate Kind = "invalidate"
	KindResolve    Kind = "resolve"
	KindDatagram   Kind = "datagram"
	KindConn       Kind = "connection" // waits: from the dial's beginning, or the accept, until it has failed
	KindEnd        Kind = "end"        // of a connection whose device is gone
	KindClose      Kind = "close"
)

// waits reports whether k waits for the peer's program.
func (k Kind) waits() bool {
	return k == KindRecv || k == KindEcho || k == KindAccept || k == KindConn
}

// entry is one outstanding operation.
type entry struct {
	kind  Kind
	began time.Time
	bound time.Duration // of its kind, without slack
}

// ledger records operations. Unless noted otherwise its methods may be called from any goroutine;
// each holds the mutex for a short time.
type ledger struct {
	slack time.Duration // added to each bound, because the machine may be busy

	mu       sync.Mutex
	next     uint64
	open     map[uint64]entry
	kinds    map[Kind]*Tally
	departed map[Departure]int
	mark     time.Time // the time at which the peer was marked as gone; zero if it is not
	stale    int       // outstanding operations with a bound that began before the mark
	ended    func()    // called when stale reaches zero
	lastEnd  time.Time // the end of the operation that ended last
	findings findings
}

// findings holds descriptions of violations of the invariants.
type findings struct {
	late, unknown, corrupt []string
}

// unbounded is the bound of operations without one: longer than any test runs.
const unbounded = time.Hour

// most is the number of findings that each list keeps; the first ones are the most useful.
const most = 8

func note(list *[]string, format string, args ...any) {
	if len(*list) < most {
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

func newLedger(slack time.Duration) *ledger {
	return &ledger{slack: slack, open: map[uint64]entry{}, kinds: map[Kind]*Tally{}, departed: map[Departure]int{}}
}

// begin records the beginning of an operation and returns its number for end.
func (l *ledger) begin(k Kind, bound time.Duration) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.open[l.next] = entry{kind: k, began: time.Now(), bound: bound}
	return l.next
}

// end records the end of an operation and returns err.
func (l *ledger) end(op uint64, err error) error {
	now := time.Now()
	l.mu.Lock()
	e, ok := l.open[op]
	if !ok {
		note(&l.findings.corrupt, "an operation ended twice: %v", err)
		l.mu.Unlock()
		return err
	}
	delete(l.open, op)
	l.judge(e, now, err)
	last := e.bound != unbounded && e.began.Before(l.mark) && l.less()
	l.mu.Unlock()
	if last {
		l.ended()
	}
	return err
}

// less decrements stale, and reports whether it is now zero. The caller holds mu.
func (l *ledger) less() bool {
	l.stale--
	return l.stale == 0
}

// judge records the outcome of an operation that has ended. The caller holds mu.
func (l *ledger) judge(e entry, now time.Time, err error) {
	l.lastEnd = now
	t := l.kinds[e.kind]
	if t == nil {
		t = &Tally{Failed: map[Class]int{}}
		l.kinds[e.kind] = t
	}
	took := now.Sub(e.began)
	since := l.sinceMark(e, now)
	if err == nil {
		t.OK++
		if !l.mark.IsZero() {
			t.OKSinceMark++
		}
	} else {
		class := Classify(err)
		t.Failed[class]++
		if class == ClassUnknown {
			note(&l.findings.unknown, "%s after %v: %v", e.kind, took.Round(time.Millisecond), err)
		}
		if t.Example == "" {
			t.Example = err.Error()
		}
	}
	if !e.kind.waits() {
		t.LongestMS = max(t.LongestMS, took.Milliseconds())
	}
	t.SinceMarkMS = max(t.SinceMarkMS, since.Milliseconds())
	if judged := l.judged(e, now); judged > e.bound+l.slack {
		note(&l.findings.late, "%s ended after %v, its bound is %v: %v", e.kind, judged.Round(time.Millisecond), e.bound, err)
	}
}

// sinceMark returns the part of an operation's time that came after the mark. The caller holds mu.
func (l *ledger) sinceMark(e entry, now time.Time) time.Duration {
	if l.mark.IsZero() {
		return 0
	}
	return now.Sub(later(e.began, l.mark))
}

// judged returns the part of an operation's time that counts against its bound. For kinds that wait
// for the peer's program this is the time after the mark, else all of it. The caller holds mu.
func (l *ledger) judged(e entry, now time.Time) time.Duration {
	if e.kind.waits() {
		return l.sinceMark(e, now)
	}
	return now.Sub(e.began)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// setMark records that the peer is gone now. The function ended is called one time, when all
// operations with a bound that are outstanding now have ended, unless the mark is cleared before.
func (l *ledger) setMark(ended func()) {
	l.mu.Lock()
	l.mark, l.ended, l.stale = time.Now(), ended, 0
	for _, e := range l.open {
		if e.bound != unbounded {
			l.stale++
		}
	}
	none := l.stale == 0
	l.mu.Unlock()
	if none {
		ended()
	}
}

// clearMark records that the peer is back.
func (l *ledger) clearMark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark = time.Time{}
}

// wrong records incorrect data.
func (l *ledger) wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	note(&l.findings.corrupt, format, args...)
}
