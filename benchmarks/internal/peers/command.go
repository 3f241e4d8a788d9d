package peers

import (
	"flag"
	"io"
	"regexp"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// usage is the output of -h before the flags.
const usage = `usage: peers [flags]

Two processes of this machine, over loopback: ours on the software RNIC by UDP, beside
Go's TCP, UCX and libfabric, and beside a bare UDP ping-pong and a GSO stream in C:
medians of alternating rounds, in brackets the lowest and the highest of them. Each
round starts both processes of a contestant. Latencies are half a round trip.

UCX is Debian's ucx-utils, libfabric libfabric-bin; the GSO stream takes a C compiler. A row
that cannot be measured says why. An idle machine takes some ten minutes.

`

// Main runs the command with the arguments after its name. It blocks until the table is written,
// and returns the exit code, like suite.Command. Any goroutine may call it.
func Main(args []string, stdout, stderr io.Writer) int {
	s := &session{}
	with := ""
	c := suite.Command{
		Name: "peers", Usage: usage,
		Ops:     1_000_000,
		OpsNote: "; less where one takes long",
		// A round on a busy machine where two processes that poll share a processor.
		RoundTime: 3 * time.Minute,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&with, "with", "", "run the contestants that match this `regexp`: ours, Go TCP, bare UDP, GSO, UCX, libfabric")
		},
		Check: func() (err error) {
			s.with, err = regexp.Compile(with)
			return err
		},
		Trials: func(ops int) []suite.Trial {
			s.ops = ops
			return s.trials()
		},
		Close: s.cleanUp,
	}
	return c.Main(args, stdout, stderr)
}
