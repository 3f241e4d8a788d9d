package outage

import (
	"fmt"
	"sync"
	"time"
)

// Kind is what an operation is, in the report.
type Kind string

// The kinds. Those that wait for the peer's program are bounded only while the
// peer is known to be gone.
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
	KindEnd        Kind = "end" // of a connection whose device is gone
	KindClose      Kind = "close"
)

// waits tells the kinds that wait for the peer's program.
func (k Kind) waits() bool { return k == KindRecv || k == KindEcho || k == KindAccept }

// entry is one operation under way.
type entry struct {
	kind  Kind
	began time.Time
	bound time.Duration // of its kind, without the allowance
}

// ledger records operations. Its methods may be called from any goroutine; each
// takes one mutex for a moment.
type ledger struct {
	slack time.Duration // what a busy machine is allowed beside the bound

	mu       sync.Mutex
	next     uint64
	open     map[uint64]entry
	kinds    map[Kind]*Tally
	departed map[Departure]int
	mark     time.Time // when the peer went; zero while it is there
	stale    int       // operations under way that began before the mark
	ended    func()    // called when the last of them has ended
	lastEnd  time.Time // of any operation
	findings findings
}

// findings are what must not be.
type findings struct {
	late, unknown, corrupt []string
}

// unbounded is the bound of what has none: longer than anybody looks.
const unbounded = time.Hour

// most is how many findings of a sort are kept: the first are the telling ones.
const most = 8

func note(list *[]string, format string, args ...any) {
	if len(*list) < most {
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

func newLedger(slack time.Duration) *ledger {
	return &ledger{slack: slack, open: map[uint64]entry{}, kinds: map[Kind]*Tally{}, departed: map[Departure]int{}}
}

// begin records the beginning of an operation; end wants what it returns.
func (l *ledger) begin(k Kind, bound time.Duration) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.open[l.next] = entry{kind: k, began: time.Now(), bound: bound}
	return l.next
}

// end records how an operation ended, and gives its error back.
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

// less counts an operation that began before the mark, and tells whether it was the
// last.
func (l *ledger) less() bool {
	l.stale--
	return l.stale == 0
}

// judge adds an operation that has ended to what is reported.
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

// sinceMark is how much of an operation came after the mark.
func (l *ledger) sinceMark(e entry, now time.Time) time.Duration {
	if l.mark.IsZero() {
		return 0
	}
	return now.Sub(later(e.began, l.mark))
}

// judged is the time that counts against the bound: of what waits for the peer's
// program only what came after the mark.
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

// setMark says that the peer went now. ended is called once, when all that is under
// way has ended, unless the mark is cleared before.
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

// clearMark says that the peer is there again.
func (l *ledger) clearMark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark = time.Time{}
}

// wrong records data that is not what it must be.
func (l *ledger) wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	note(&l.findings.corrupt, format, args...)
}

// succeeded is how many operations of all kinds there were.
func (l *ledger) succeeded() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.kinds {
		n += t.OK
	}
	return n
}

// forgive takes the bound from an operation that nobody promises will end while
// the process is under load.
func (l *ledger) forgive(op uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.open[op]
	e.bound = unbounded
	l.open[op] = e
}
