package overhead

import (
	"context"
	_ "embed"
	"os"
	"os/exec"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

//go:embed c/loop.c
var loopSource []byte

// buildLoop compiles the loop in C into dir, and returns the program.
func buildLoop(ctx context.Context, dir string, libs nulldev.Paths) (string, error) {
	return bed.Compile(ctx, dir, "loop", loopSource, libs)
}

// startLoop starts the loop as a side.
func startLoop(ctx context.Context, program string) (*side.Child, error) {
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	return side.Start(ctx, "the loop in C", cmd)
}
