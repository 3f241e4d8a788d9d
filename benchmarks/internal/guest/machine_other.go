//go:build !linux

package guest

import (
	"context"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// machine is the machine with Soft-RoCE, which requires Linux.
type machine struct {
	place Place
	port  int
}

func boot(context.Context, *Guest) (*machine, error) { return nil, rxevm.Missing() }

// Close does nothing: there is no machine.
func (*machine) Close() error { return nil }

func (*machine) run(context.Context, Pair) (rounds.Values, error) { return nil, rxevm.Missing() }
