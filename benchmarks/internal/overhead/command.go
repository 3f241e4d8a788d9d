package overhead

import (
	"flag"
	"io"
	"slices"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// usage is the output of -h before the flags.
const usage = `usage: overhead [flags]

What the way from a caller to the doorbell and back costs, beside a loop in C
that does the same and beside the C programs that everybody knows, in one table:
medians of alternating rounds, in brackets the lowest and the highest of them.
CPU is the user plus system time of a side's whole process, per operation.

The null device takes a C compiler, Soft-RoCE takes QEMU (internal/rxevm); a row
that cannot be measured says why. An idle machine takes some four minutes.

`

// Main runs the command with the arguments after its name. It blocks until the table is written,
// and returns the exit code, like suite.Command. Any goroutine may call it.
func Main(args []string, stdout, stderr io.Writer) int {
	s := &session{guest: guest.Guest{Log: stderr}}
	c := suite.Command{
		Name: "overhead", Usage: usage,
		Ops:       1_000_000, // the number for which the goal for allocations is defined
		OpsNote:   "; less where one takes long",
		RoundTime: 3 * time.Minute,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&s.profiles, "profiles", "", "write CPU profiles of our sides, but for those in a guest, to this `folder`")
		},
		Trials: func(ops int) []suite.Trial {
			s.ops = ops
			return slices.Concat(s.trialsOnNull(), []suite.Trial{s.idlers()}, s.trialsOnSoft(), s.trialsInGuest())
		},
		Close: s.cleanUp,
	}
	return c.Main(args, stdout, stderr)
}
