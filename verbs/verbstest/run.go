package verbstest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mem"
)

// OutEnv is the environment variable with the directory for reports.
const OutEnv = "VERBENA_CONFORMANCE_OUT"

// Run runs all cases on the pair, as subtests of t, one after another; logs the result as a table
// and writes it to the directory in [OutEnv]. The endpoints belong to the caller, which closes
// them and does not use them meanwhile. Run blocks until the last case is done.
func Run(t *testing.T, p Pair) *Report {
	t.Helper()
	if err := p.validate(); err != nil {
		t.Fatal(err)
	}
	rep := &Report{Pair: p.Name, A: describe(&p.A), B: describe(&p.B), MTU: p.MTU.Bytes(), Device: p.Device}
	for _, s := range Cases() {
		res := Result{Topic: s.Topic, Name: s.Name, Rule: s.Rule, Verdict: NotApplicable, Reason: s.lacks(&p.Caps)}
		began, ran := time.Now(), false
		t.Run(s.Name, func(t *testing.T) {
			ran = true
			if res.Reason != "" {
				t.Skipf("not applicable: %s", res.Reason)
			}
			res.Verdict = Failed // until it returns
			runCase(t, &p, &s, &res)
		})
		if !ran {
			continue // left out by -run
		}
		res.Micros = time.Since(began).Microseconds()
		rep.Results = append(rep.Results, res)
	}
	t.Log(rep.String())
	if dir := os.Getenv(OutEnv); dir != "" {
		if err := rep.Write(filepath.Join(dir, p.Name+".json")); err != nil {
			t.Errorf("writing the report: %v", err)
		}
	}
	return rep
}

// runCase runs one case in its own subtest: the case, then the closing of its objects, then the
// leak check.
func runCase(t *testing.T, p *Pair, s *Spec, res *Result) {
	arenas, bytes := mem.Live()
	objA, objB := p.A.Context.Objects(), p.B.Context.Objects()
	c := &Case{t: t, pair: p, spec: s}
	defer func() {
		c.cleanUp()
		if n, b := mem.Live(); n != arenas || b != bytes {
			t.Errorf("the case left %d mappings, %d bytes", n-arenas, b-bytes)
		}
		if o := p.A.Context.Objects(); o != objA {
			t.Errorf("the case left objects at A: %v, before it %v", o, objA)
		}
		if o := p.B.Context.Objects(); o != objB {
			t.Errorf("the case left objects at B: %v, before it %v", o, objB)
		}
		switch {
		case t.Failed():
			res.Verdict, res.Reason = Failed, "see the log"
		case c.skipped != "":
			res.Verdict, res.Reason = NotApplicable, c.skipped
		case c.done:
			res.Verdict = Passed
		}
	}()
	c.A, c.B = newEnd(c, "A", &p.A), newEnd(c, "B", &p.B)
	s.run(c)
	c.done = true
}

func describe(e *Endpoint) string { return e.Provider.Name() + " " + e.Context.Device().Name }
