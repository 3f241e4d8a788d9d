package overhead

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
)

// The defaults of the flags: rounds as many as it takes to see what is an exception,
// operations as many as the goal for allocations counts over.
const (
	defaultRounds = 9
	defaultOps    = 1_000_000
)

// usage is what -h says before the flags.
const usage = `usage: overhead [flags]

What the way from a caller to the doorbell and back costs, beside a loop in C
that does the same and beside the C programs that everybody knows, in one table:
medians of alternating rounds, in brackets the lowest and the highest of them.
CPU is the user plus system time of a side's whole process, per operation.

The null device takes a C compiler, Soft-RoCE takes QEMU (internal/rxevm); a row
that cannot be measured says why. An idle machine takes some four minutes.

`

// Main is the command, with the arguments after its name. It blocks until the table is
// written, and returns the exit code: 0 also where a goal is not met.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &suite{}
	f := flag.NewFlagSet("overhead", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		f.PrintDefaults()
	}
	only := f.String("only", "", "measure the figures that match this `regexp`")
	f.IntVar(&s.rounds, "rounds", defaultRounds, "alternating rounds of each comparison")
	f.IntVar(&s.ops, "ops", defaultOps, "operations of a round; less where one takes long")
	f.StringVar(&s.json, "json", "", "write the rows to this `file` too")
	f.StringVar(&s.profiles, "profiles", "", "write CPU profiles of our sides, but for those in a guest, to this `folder`")
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
		case s.rounds < 1 || s.ops < 1:
			err = fmt.Errorf("%d rounds of %d operations", s.rounds, s.ops)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "overhead: %v (-h for help)\n", err)
		return 2
	}
	if err := s.run(ctx, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "overhead: %v\n", err)
		return 1
	}
	return 0
}
