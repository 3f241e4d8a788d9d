package messages

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"os/exec"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/side"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

//go:embed c/twosided.c
var twoSidedSource []byte

// inC is the name of the side in C.
const inC = "c"

// twoSided returns the loop in C as a side that does n operations in a round: messages one way in lists of that
// length, or round trips if list is 0.
func twoSided(n, list int) suite.Contender {
	return suite.Contender{
		Name: inC,
		Args: func(rounds.Round) rounds.Values { return rounds.Values{suite.Ops: float64(n), "list": float64(list)} },
		Start: func(ctx context.Context) (suite.Runner, error) {
			c, err := startTwoSided(ctx)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
	}
}

// startTwoSided compiles the loop in C and starts it.
func startTwoSided(ctx context.Context) (_ *side.Child, err error) {
	libs, err := nulldev.Build()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "verbena-messages-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }() // a running program keeps its file
	program, err := bed.Compile(ctx, dir, "twosided", twoSidedSource, libs)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	return side.Start(ctx, "the loop in C", cmd)
}
