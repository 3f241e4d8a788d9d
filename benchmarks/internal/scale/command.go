package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// The defaults of the flags.
const (
	defaultRounds = 9
	defaultOps    = 20_000
	defaultMost   = 10_000
)

// usage is what -h says before the flags.
const usage = `usage: scale [flags]

What a connection costs when there are ten thousand of them in one process: memory,
the time to make it, and what idle ones cost the one that is used: medians of
alternating rounds, in brackets the lowest and the highest of them. Both ends are
in the process, so a connection's figures are those of both.

The null device takes a C compiler; a row that cannot be measured says why. With all
ten thousand it takes some minutes and some 2 GB of memory.

`

// suite is one run of the command. Its methods are for one goroutine.
type suite struct {
	ops, rounds, most int
	only              *regexp.Regexp
	json              string
	list              bool
	libs              nulldev.Paths // once they are built
}

// Main is the command, with the arguments after its name. It blocks until the table is
// written, and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &suite{}
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
	}
	only := f.String("only", "", "measure the figures that match this `regexp`")
	f.IntVar(&s.rounds, "rounds", defaultRounds, "alternating rounds of each comparison")
	f.IntVar(&s.ops, "ops", defaultOps, "operations of a round")
	f.IntVar(&s.most, "most", defaultMost, "the largest number of connections")
	f.StringVar(&s.json, "json", "", "write the rows to this `file` too")
	f.BoolVar(&s.list, "list", false, "print the figures and measure nothing")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	var err error
	if s.only, err = regexp.Compile(*only); err == nil {
		switch {
		case f.NArg() > 0:
			err = fmt.Errorf("%q is no flag", f.Arg(0))
		case s.rounds < 1 || s.ops < 1 || s.most < 1:
			err = fmt.Errorf("%d rounds of %d operations with up to %d connections", s.rounds, s.ops, s.most)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "scale: %v (-h for help)\n", err)
		return 2
	}
	if err := s.run(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "scale: %v\n", err)
		return 1
	}
	return 0
}

// run measures what is wanted and writes the rows. What could not be measured is a row
// and no error.
func (s *suite) run(ctx context.Context, stdout, stderr io.Writer) error {
	var all []report.Row
	found := false
	for _, t := range s.trials() {
		rows := t.rows[:0:0]
		for _, r := range t.rows {
			if s.only.MatchString(r.figure) {
				rows = append(rows, r)
			}
		}
		if found = found || len(rows) > 0; len(rows) == 0 {
			continue
		}
		if s.list {
			for _, r := range rows {
				fmt.Fprintln(stdout, r.figure)
			}
			continue
		}
		fmt.Fprintf(stderr, "%s ...\n", rows[0].figure)
		t.rows = rows
		all = append(all, t.run(ctx)...)
		if ctx.Err() != nil {
			break
		}
	}
	switch {
	case !found:
		return fmt.Errorf("no figure matches %q (-list prints them)", s.only)
	case s.list:
		return nil
	}
	var err error
	if s.json != "" {
		err = report.JSONFile(s.json, all)
	}
	return errors.Join(err, report.Table(stdout, all), ctx.Err())
}

// at is a device as workers are told of it; the null device is built first.
func (s *suite) at(device string) (place, error) {
	if device != devNull {
		return place{device: device}, nil
	}
	var err error
	if s.libs == (nulldev.Paths{}) {
		s.libs, err = nulldev.Build()
	}
	return place{device: device, verbs: s.libs.Verbs, rdmacm: s.libs.RDMACM}, err
}
