package messages

import (
	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// largeSize is the size of a large message, which is read from the sender's memory. largeDepth of them are
// outstanding.
const largeSize, largeDepth = 1 << 20, 4

// newLargeOneWay makes a receiver of large messages.
func newLargeOneWay(s settings) (suite.Load, error) {
	k, err := connect(s.at, verbena.Options{}, largeSize)
	if err != nil {
		return nil, err
	}
	return newOneWay(k, bed.NewLists(verbena.SendOp(k.Local), 1, largeDepth), receiveManaged)
}

// newLargeWrites makes WRITEs of the same size.
func newLargeWrites(s settings) (suite.Load, error) {
	k, err := connect(s.at, verbena.Options{}, largeSize)
	if err != nil {
		return nil, err
	}
	return &writes{k, bed.NewLists(verbena.WriteOp(k.Local, k.Remote), 1, largeDepth)}, nil
}
