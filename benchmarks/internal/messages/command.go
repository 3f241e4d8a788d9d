package messages

import (
	"io"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
)

// usage is the output of -h before the flags.
const usage = `usage: messages [flags]

What a message of 8 bytes costs: between two goroutines over a connection of the
software RNIC in one process, beside WRITEs and Go's channels; on the null
device, beside a loop in C; and to an actor, beside a channel: medians of alternating rounds, in brackets the lowest and the
highest of them. CPU is the user plus system time of both ends.

An idle machine takes some two minutes.

`

// Main runs the command with the arguments after its name. It blocks until the table is written,
// and returns the exit code, like suite.Command. Any goroutine may call it.
func Main(args []string, stdout, stderr io.Writer) int {
	c := suite.Command{
		Name: "messages", Usage: usage,
		Ops:       1_000_000, // the number for which the goal for allocations is defined
		OpsNote:   "; less where one takes long",
		RoundTime: time.Minute,
		Trials:    trials,
	}
	return c.Main(args, stdout, stderr)
}
