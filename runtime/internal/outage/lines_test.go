package outage

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// lines collects a peer's output and waits for lines of it.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	more chan struct{} // one token: output since the last take
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

// wait waits at most d for line in the output, and reports whether it came.
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

// must waits for each of the lines, and fails the test if one does not come.
func (l *lines) must(t testing.TB, d time.Duration, want ...string) {
	t.Helper()
	for _, line := range want {
		if !l.wait(line, d) {
			t.Fatalf("%q was not said within %v; said: %s", line, d, l)
		}
	}
}

// good checks that all invariants hold; a device other than Soft-RoCE must have no departures.
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
