package leak

import (
	"runtime"
	"strconv"
	"strings"
)

// goroutine is one entry of a stack dump.
type goroutine struct {
	id    uint64
	state string // "running", "chan receive, 2 minutes"
	text  string // the whole entry
}

// firstDump is the initial size of the buffer for a dump; it grows as needed.
const firstDump = 64 << 10

// goroutines returns all goroutines except the caller.
func goroutines() []goroutine {
	buf := make([]byte, firstDump)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			all := parseDump(string(buf[:n]))
			return all[min(1, len(all)):] // the caller comes first
		}
		buf = make([]byte, 2*len(buf))
	}
}

// parseDump parses the output of runtime.Stack: entries separated by an empty line, each with the
// header "goroutine 12 [state]:" (with "gp=... m=..." before the state at GOTRACEBACK=system). It
// ignores other text.
func parseDump(dump string) []goroutine {
	var all []goroutine
	for entry := range strings.SplitSeq(dump, "\n\n") {
		head, _, _ := strings.Cut(entry, "\n")
		rest, ok := strings.CutPrefix(head, "goroutine ")
		if !ok {
			continue
		}
		number, rest, _ := strings.Cut(rest, " ")
		id, err := strconv.ParseUint(number, 10, 64)
		_, state, ok := strings.Cut(rest, "[")
		if err != nil || !ok {
			continue
		}
		state, _, _ = strings.Cut(state, "]")
		all = append(all, goroutine{id: id, state: state, text: strings.TrimRight(entry, "\n")})
	}
	return all
}

// harmless reports whether Go or its standard library starts this goroutine once and never ends
// it.
func (g goroutine) harmless() bool {
	for _, f := range []string{
		"os/signal.signal_recv(", // after the first signal.Notify
		"os/signal.loop(",
		"runtime.ensureSigM(",    // likewise, on some systems
		"runtime.runFinalizers(", // these two are listed while they run user code
		"runtime.runCleanups(",
	} {
		if strings.Contains(g.text, f) {
			return true
		}
	}
	return false
}
