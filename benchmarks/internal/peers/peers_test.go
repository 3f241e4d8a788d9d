package peers

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/smoke"
	"github.com/verbena-rdma/verbena/internal/leak"
)

// TestMain makes this test binary a client and a server, like the command, and a foreign program.
func TestMain(m *testing.M) {
	smoke.Worker(WorkerArg, Worker)
	if len(os.Args) == 4 && os.Args[1] == foreignArg {
		os.Exit(foreign(os.Args[2], os.Args[3]))
	}
	leak.Main(m)
}

// notHere are the reasons for which a figure may be missing.
var notHere = []string{"no C compiler", "unsupported operation", "UDP_SEGMENT is Linux's", errLeftOut.Error()}

// Rule: all figures of our own programs are measured, and times and rates are positive.
func TestEveryFigureIsMeasured(t *testing.T) {
	// Under the race detector a process sleeps for a second before it ends, and this is many processes.
	t.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	measured := 0
	for _, r := range smoke.Run(t, Main, "-with", "^(ours|Go TCP|bare UDP|GSO)", "-rounds", "1", "-ops", "2000") {
		excused := slices.ContainsFunc(notHere, func(reason string) bool { return strings.Contains(r.Why, reason) })
		switch {
		case excused:
			t.Logf("%s: %s", r.Figure, r.Why)
		case r.Why != "" || r.Ours == nil:
			t.Errorf("%s: not measured: %s", r.Figure, r.Why)
		// The CPU time of so few operations may be below the system's resolution.
		case *r.Ours <= 0 && !strings.Contains(r.Figure, "allocations") && !strings.Contains(r.Figure, "CPU"):
			t.Errorf("%s is %v", r.Figure, *r.Ours)
		default:
			measured++
		}
	}
	if measured == 0 {
		t.Error("nothing was measured")
	}
}

// Rule: a wrong -with is refused, and -list prints the figures that -only selects.
func TestFlags(t *testing.T) {
	var out, trouble strings.Builder
	if code := Main([]string{"-with", "("}, &out, &trouble); code != 2 || !strings.Contains(trouble.String(), "error parsing regexp") {
		t.Errorf("it ended with %d and %q", code, trouble.String())
	}
	if code := Main([]string{"-list", "-only", "^connections"}, &out, &trouble); code != 0 || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("-list ended with %d and printed %q", code, out.String())
	}
}

// Rule: a contender that fails is not run again, and its rows have the reason; those of others do not.
func TestFailureOfAContender(t *testing.T) {
	s, ran := &session{ops: 1, with: regexp.MustCompile("")}, 0
	broken := s.contender("broken", "", func(context.Context) (rounds.Values, error) { ran++; return nil, errors.New("it broke") })
	sound := s.contender("sound", "as it was", func(context.Context) (rounds.Values, error) { return rounds.Values{vRate: 6}, nil })
	for range 3 {
		for _, c := range []*contender{broken, sound} {
			if v, err := c.Round(t.Context(), nil); err != nil || v == nil {
				t.Fatalf("%s: %v, %v", c.name, v, err)
			}
		}
	}
	if ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
	if note, why := tell(sound, broken)(nil); note != "" || why != "broken: not run: it broke" {
		t.Errorf("beside it: %q, %q", note, why)
	}
	if note, why := tell(sound)(nil); note != "as it was" || why != "" {
		t.Errorf("the sound one: %q, %q", note, why)
	}
	if got := sound.of(of(vRate, 2))(rounds.Round{"sound": {vRate: 6}}); got != 3 {
		t.Errorf("its figure is %v", got)
	}
	s.with = regexp.MustCompile("^ours")
	if c := s.contender("UCX tag_bw", "", nil); !errors.Is(c.why, errLeftOut) {
		t.Errorf("left out: %v", c.why)
	}
}
