package pmem

import (
	"context"
	"errors"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/plog"
)

// logSize is the size of a log with room for the records of a round of mostOps: with their headers they take 4.5 KiB of each
// three. No record is freed during a round.
const logSize = 48 << 20

func servePlog(ctx context.Context, rt *verbena.Runtime, file, addr string, ready func(addr string)) (err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(context.WithoutCancel(ctx))) }()
	region, err := rt.NewFileRegion(file, logSize, plog.Access)
	if err != nil {
		return err
	}
	open.add(plain(region.Close))
	log, err := plog.Create(region, plog.Config{Lanes: 1})
	if err != nil {
		return err
	}
	ln, err := rt.Listen(addr)
	if err != nil {
		return err
	}
	open.add(ln.Close)
	ready(ln.Addr().String())
	c, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	open.add(c.Close)
	if err := log.Serve(ctx, c); !errors.Is(err, verbena.ErrPeerClosed) {
		return err
	}
	return nil
}

// lane is the writer of a lane of a log.
type lane struct {
	conn   *verbena.Conn
	w      *plog.Writer
	record [largest]byte
}

func dialPlog(ctx context.Context, rt *verbena.Runtime, addr, _ string) (appender, error) {
	c, err := rt.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	w, err := plog.Join(ctx, rt, c, 0)
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return &lane{conn: c, w: w}, nil
}

func (l *lane) append(ctx context.Context, size int) error {
	_, err := l.w.Append(ctx, l.record[:size])
	return err
}

func (l *lane) close(ctx context.Context) error { return l.conn.Close(ctx) }
