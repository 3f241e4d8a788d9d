package scale

import (
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// defaultMost is the default of -most.
const defaultMost = 10_000

// usage is the output of -h before the flags.
const usage = `usage: scale [flags]

What a connection costs when there are ten thousand of them in one process: memory,
the time to make it, and what idle ones cost the one that is used: medians of
alternating rounds, in brackets the lowest and the highest of them. Both ends are
in the process, so a connection's figures are those of both.

The null device takes a C compiler; a row that cannot be measured says why. With all
ten thousand it takes some minutes and some 2 GB of memory.

`

// Main runs the command with the arguments after its name. It blocks until the table is written,
// and returns the exit code, like suite.Command. Any goroutine may call it.
func Main(args []string, stdout, stderr io.Writer) int {
	var s sizing
	c := suite.Command{
		Name: "scale", Usage: usage,
		Ops: 20_000,
		// Ten thousand connections made and closed on a busy machine.
		RoundTime: 5 * time.Minute,
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&s.most, "most", defaultMost, "the largest number of connections")
		},
		Check: func() error {
			if s.most < 1 {
				return fmt.Errorf("up to %d connections", s.most)
			}
			return nil
		},
		Trials: func(ops int) []suite.Trial {
			s.ops = ops
			return s.trials()
		},
	}
	return c.Main(args, stdout, stderr)
}
