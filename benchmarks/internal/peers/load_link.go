package peers

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// link is a connection to a server of ours.
type link struct {
	rt   *verbena.Runtime
	conn *verbena.Conn
}

// dial opens a runtime and connects.
func dial(to string, h shape) (*link, error) {
	rt, err := verbena.Open(h.config())
	if err != nil {
		return nil, err
	}
	l := &link{rt: rt}
	if l.conn, err = rt.Dial(context.Background(), to); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// writeOp returns the WRITE of size bytes to the server's memory.
func (l *link) writeOp(size int) (op verbena.Op, err error) {
	told := l.conn.PrivateData()
	if len(told) < verbena.RemoteSize {
		return op, fmt.Errorf("the server told %d bytes of where its memory is", len(told))
	}
	var remote verbena.Remote
	if err := remote.UnmarshalBinary(told[:verbena.RemoteSize]); err != nil {
		return op, err
	}
	r, err := l.rt.NewRegion(size, verbs.AccessLocalWrite)
	if err != nil {
		return op, err
	}
	local, err := r.Slice(0, size)
	return verbena.WriteOp(local, remote), err
}

// Close implements suite.Load.
func (l *link) Close() error { return bed.Close(l.rt) }
