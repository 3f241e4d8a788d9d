package outage

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines keeps what a peer says, and waits for lines of it.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	more chan struct{} // one token: something came since it was taken
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// wait waits until the peer has said line, at most d, and tells whether it did.
func (l *lines) wait(line string, d time.Duration) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	for {
		l.mu.Lock()
		said := bytes.HasPrefix(l.text.Bytes(), []byte(line+"\n")) || bytes.Contains(l.text.Bytes(), []byte("\n"+line+"\n"))
		l.mu.Unlock()
		if said {
			return true
		}
		select {
		case <-l.more:
		case <-limit.C:
			return false
		}
	}
}

// must waits for each of the lines.
func (l *lines) must(t testing.TB, d time.Duration, want ...string) {
	t.Helper()
	for _, line := range want {
		if !l.wait(line, d) {
			t.Fatalf("%q was not said within %v; said: %s", line, d, l)
		}
	}
}

// good checks that all invariants hold, by the device as well if it is not Soft-RoCE.
func good(t testing.TB, r *Report) *Report {
	t.Helper()
	for d, n := range r.Departures {
		if !strings.HasPrefix(r.Device, "rxe") {
			t.Errorf("%s: %d times %s", r.Device, n, d)
			continue
		}
		t.Logf("%s: %d times %s", r.Device, n, d)
	}
	if err := r.Broken(); err != nil {
		t.Errorf("%s: %v", r.Device, err)
	}
	return r
}
