package suite

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
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/report"
)

// defaultRounds is enough to recognize outliers.
const defaultRounds = 9

// Command is a suite as a command. It has the flags -only, -rounds, -ops, -json and -list.
type Command struct {
	Name    string
	Usage   string // the output of -h before the flags
	Ops     int    // the default of -ops
	OpsNote string // addition to the help of -ops; empty for none
	// RoundTime bounds one round of one side, on a busy machine.
	RoundTime time.Duration
	// Flags defines the suite's own flags; nil for none.
	Flags func(*flag.FlagSet)
	// Check returns the error of invalid values of the suite's own flags; nil if all values are
	// valid.
	Check func() error
	// Trials returns all trials, in the order of the table, for rounds of ops operations.
	Trials func(ops int) []Trial
	// Close releases the state shared by the trials, after the table; nil for none.
	Close func() error
}

// options are the values of the flags of all suites.
type options struct {
	only        *regexp.Regexp
	rounds, ops int
	json        string
	list        bool
}

// Main runs the command with the arguments after its name. It blocks until the table is written,
// and returns the exit code: 0 also where a goal is not met, 1 for an error and 2 for wrong
// arguments. SIGINT and SIGTERM end it after the current trial. One goroutine may call it.
func (c *Command) Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := c.parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := c.run(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
		return 1
	}
	return 0
}

// parse parses the arguments. It has written an error to stderr already.
func (c *Command) parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, c.Usage)
		f.PrintDefaults()
	}
	only := f.String("only", "", "measure the figures that match this `regexp`")
	f.IntVar(&o.rounds, "rounds", defaultRounds, "alternating rounds of each comparison")
	f.IntVar(&o.ops, "ops", c.Ops, "operations of a round"+c.OpsNote)
	f.StringVar(&o.json, "json", "", "write the rows to this `file` too")
	f.BoolVar(&o.list, "list", false, "print the figures and measure nothing")
	if c.Flags != nil {
		c.Flags(f)
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.only, err = regexp.Compile(*only)
	switch {
	case err != nil:
	case f.NArg() > 0:
		err = fmt.Errorf("%q is no flag", f.Arg(0))
	case o.rounds < 1 || o.ops < 1:
		err = fmt.Errorf("%d rounds of %d operations", o.rounds, o.ops)
	case c.Check != nil:
		err = c.Check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v (-h for help)\n", c.Name, err)
	}
	return o, err
}

// run measures the selected figures and writes the rows. A figure that could not be measured is a
// row and no error.
func (c *Command) run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if c.Close != nil {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	var all []report.Row
	found := false
	for _, t := range c.Trials(o.ops) {
		var wanted []Row
		for _, r := range t.Rows {
			if !o.only.MatchString(r.figure) {
				continue
			}
			wanted = append(wanted, r)
			if o.list {
				fmt.Fprintln(stdout, r.figure)
			}
		}
		found = found || len(wanted) > 0
		if o.list || len(wanted) == 0 {
			continue
		}
		fmt.Fprintf(stderr, "%s ...\n", wanted[0].figure)
		t.Rows = wanted
		all = append(all, t.run(ctx, o.rounds, c.RoundTime)...)
		if ctx.Err() != nil {
			break
		}
	}
	switch {
	case !found:
		return fmt.Errorf("no figure matches %q (-list prints them)", o.only)
	case o.list:
		return nil
	}
	if o.json != "" {
		err = report.JSONFile(o.json, all)
	}
	return errors.Join(err, report.Table(stdout, all), ctx.Err())
}
