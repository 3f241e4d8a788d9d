package side

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/internal/must"
)

// childVar makes this test binary a child, of the kind in its value.
const childVar = "VERBENA_TEST_SIDE"

func TestMain(m *testing.M) {
	if kind := os.Getenv(childVar); kind != "" {
		child(kind)
		return
	}
	leak.Main(m)
}

// child is the child process of the tests.
func child(kind string) {
	switch kind {
	case "sick":
		_ = Cannot(os.Stdout, errors.New("no device\nis here"))
		return
	case "mute":
		<-time.After(time.Hour)
	case "dead":
		os.Exit(3)
	}
	n := 0.0
	err := Serve(os.Stdin, os.Stdout, func(v rounds.Values) (rounds.Values, error) {
		switch {
		case v["hang"] != 0:
			<-time.After(time.Hour)
		case v["die"] != 0:
			os.Exit(4)
		case v["refuse"] != 0:
			return nil, errors.New("not that")
		}
		n++
		return rounds.Values{"n": n, "twice": 2 * v["x"]}, nil
	})
	if err != nil {
		os.Exit(5)
	}
}

func start(t *testing.T, kind string) (*Child, error) {
	t.Helper()
	self := must.Get(os.Executable())(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVar+"="+kind)
	return Start(ctx, kind, cmd)
}

// Rule: a child runs round after round, one that refuses a round continues, and it ends without
// an error when it is closed.
func TestRoundsOfAChild(t *testing.T) {
	c := must.Get(start(t, "well"))(t)
	for i := 1.0; i <= 3; i++ {
		v, err := c.Round(t.Context(), rounds.Values{"x": i})
		if err != nil || v["n"] != i || v["twice"] != 2*i {
			t.Fatalf("round %g: %v, %v", i, v, err)
		}
	}
	_, err := c.Round(t.Context(), rounds.Values{"refuse": 1})
	var cannot *CannotError
	if !errors.As(err, &cannot) || cannot.Why != "not that" || cannot.Side != "well" {
		t.Errorf("it refused by %v", err)
	}
	if v, err := c.Round(t.Context(), nil); err != nil || v["n"] != 4 {
		t.Errorf("after a refusal: %v, %v", v, err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("it ended by %v", err)
	}
}

// Rule: a child that cannot begin reports the reason; one that is dead or silent is an error, and
// no wait exceeds the context.
func TestChildrenThatDoNotAnswer(t *testing.T) {
	_, err := start(t, "sick")
	var cannot *CannotError
	if !errors.As(err, &cannot) || cannot.Why != "no device is here" {
		t.Errorf("a child that cannot begin: %v", err)
	}
	if _, err := start(t, "dead"); err == nil || errors.As(err, &cannot) {
		t.Errorf("a child that died at once: %v", err)
	}
	self := must.Get(os.Executable())(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVar+"=mute")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, "mute", cmd); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a child that says nothing: %v", err)
	}
	for what, told := range map[string]rounds.Values{"hangs": {"hang": 1}, "dies": {"die": 1}} {
		c := must.Get(start(t, "well"))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if what == "dies" {
			ctx = t.Context()
		}
		_, err := c.Round(ctx, told)
		cancel()
		if err == nil || what == "hangs" && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a child that %s: %v", what, err)
		}
		if err := c.Close(); err == nil {
			t.Errorf("a child that %s ended well", what)
		}
	}
}

// Rule: a malformed round ends a child with an error.
func TestServeRefusesNonsense(t *testing.T) {
	for _, in := range []string{"hello\n", "round x\n"} {
		var out strings.Builder
		if err := Serve(strings.NewReader(in), &out, nil); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}
