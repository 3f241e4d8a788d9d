//go:build !linux

package overhead

import (
	"context"
	"io"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/internal/rxevm"
)

// guest is the machine with Soft-RoCE, which requires Linux.
type guest struct{ place place }

func boot(context.Context, string, io.Writer) (*guest, error) { return nil, rxevm.Missing() }

// Close does nothing: there is no machine.
func (*guest) Close() error { return nil }

func (*guest) run(context.Context, pairing) (rounds.Values, error) { return nil, rxevm.Missing() }

func (*guest) next() int { return 0 }
