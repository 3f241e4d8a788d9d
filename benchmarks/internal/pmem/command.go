package pmem

import (
	"flag"
	"io"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/guest"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// usage is the output of -h before the flags.
const usage = `usage: pmem [flags]

What it takes to append a record to persistent memory of another process, by a
WRITE and a persistent FLUSH: package rpma and package plog beside librpma in C on
Soft-RoCE, and on a file of this system beside write and fdatasync. Medians of
alternating rounds, in brackets the lowest and the highest of them.

Soft-RoCE takes QEMU (internal/rxevm); a row that cannot be measured says why.

`

// mostOps is the largest number of operations of each size in a round, for which a log has room.
const mostOps = 10_000

// session is the state of one run of the command.
type session struct {
	ops   int
	dir   string // for the files of this system
	guest guest.Guest
}

// Main runs the command with the arguments after its name. It blocks until the table is written,
// and returns the exit code, like suite.Command. Any goroutine may call it.
func Main(args []string, stdout, stderr io.Writer) int {
	s := &session{guest: newGuest(stderr)}
	c := suite.Command{
		Name: "pmem", Usage: usage,
		Ops: 1000, OpsNote: " with each size; at most 10000",
		RoundTime: 3 * time.Minute,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&s.dir, "dir", os.TempDir(), "a `folder` for files, on the file system that is measured")
		},
		Trials: func(ops int) []suite.Trial {
			s.ops = min(ops, mostOps)
			return append(s.trialsInGuest(), s.trialOnFile())
		},
		Close: func() error { return s.guest.Close() },
	}
	return c.Main(args, stdout, stderr)
}
