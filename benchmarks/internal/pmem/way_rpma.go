package pmem

import (
	"context"
	"errors"
	"fmt"
	"net"

	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/rpma"
	"github.com/verbena-rdma/verbena/verbs"
)

// closers are closed in reverse order.
type closers []func(context.Context) error

func (c *closers) add(close func(context.Context) error) { *c = append(*c, close) }

func (c closers) close(ctx context.Context) (err error) {
	for i := len(c) - 1; i >= 0; i-- {
		err = errors.Join(err, c[i](ctx))
	}
	return err
}

// plain is a close function that needs no context.
func plain(close func() error) func(context.Context) error {
	return func(context.Context) error { return close() }
}

// expect waits for an event of a connection.
func expect(ctx context.Context, c *rpma.Conn, want rpma.Event) error {
	got, err := c.NextEvent(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("the event is %q, want %q: %w", got, want, c.Err())
	}
	return err
}

func serveRPMA(ctx context.Context, rt *verbena.Runtime, file, addr string, ready func(addr string)) (err error) {
	var open closers
	defer func() { err = errors.Join(err, open.close(context.WithoutCancel(ctx))) }()
	region, err := rt.NewFileRegion(file, ring, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessFlushPersistent)
	if err != nil {
		return err
	}
	open.add(plain(region.Close))
	peer, err := rpma.NewPeer(rt)
	if err != nil {
		return err
	}
	open.add(plain(peer.Close))
	mr, err := peer.RegRegion(region, rpma.WriteDst|rpma.FlushPersistent)
	if err != nil {
		return err
	}
	open.add(plain(mr.Close))
	desc, err := mr.Descriptor()
	if err != nil {
		return err
	}
	cfg := rpma.PeerConfig{DirectWriteToPMem: true}.Descriptor()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	ep, err := peer.Listen(ctx, host, port)
	if err != nil {
		return err
	}
	open.add(ep.Close)
	ready(ep.Addr().String())
	q, err := ep.NextConnReq(ctx, nil)
	if err != nil {
		return err
	}
	c, err := q.Connect(append(desc[:], cfg[:]...))
	if err != nil {
		return err
	}
	open.add(c.Close)
	if err := expect(ctx, c, rpma.Established); err != nil {
		return err
	}
	return expect(ctx, c, rpma.Closed)
}

// remoteRing is the memory of a server of package rpma.
type remoteRing struct {
	closers
	conn   *rpma.Conn
	cq     *rpma.CQ
	record *rpma.MR
	ring   *rpma.RemoteMR
	at     int
	wait   bool
	wcs    [1]rpma.WC
}

func dialRPMA(ctx context.Context, rt *verbena.Runtime, addr, mode string) (_ appender, err error) {
	r := &remoteRing{wait: mode == waiting}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
		}
	}()
	peer, err := rpma.NewPeer(rt)
	if err != nil {
		return nil, err
	}
	r.add(plain(peer.Close))
	if r.record, err = peer.NewMR(largest, rpma.WriteSrc); err != nil {
		return nil, err
	}
	r.add(plain(r.record.Close))
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	q, err := peer.NewConnReq(ctx, host, port, nil)
	if err != nil {
		return nil, err
	}
	if r.conn, err = q.Connect(nil); err != nil {
		return nil, err
	}
	r.add(r.conn.Close)
	if err := expect(ctx, r.conn, rpma.Established); err != nil {
		return nil, err
	}
	told := r.conn.PrivateData()
	if r.ring, err = rpma.ParseRemoteMR(told); err != nil {
		return nil, err
	}
	cfg, err := rpma.ParsePeerConfig(told[rpma.MRSize:])
	if err != nil {
		return nil, err
	}
	r.conn.ApplyRemotePeerConfig(cfg)
	r.cq = r.conn.CQ()
	return r, nil
}

func (r *remoteRing) append(ctx context.Context, size int) error {
	at := next(r.at, size)
	r.at = at + size
	if err := r.conn.Write(r.ring, at, r.record, 0, size, rpma.CompletionOnError|rpma.More, 0); err != nil {
		return err
	}
	if err := r.conn.Flush(r.ring, at, size, rpma.Persistent, rpma.CompletionAlways, 0); err != nil {
		return err
	}
	for {
		if r.wait {
			if err := r.cq.Wait(ctx); err != nil {
				return err
			}
		}
		_, err := r.cq.GetWC(r.wcs[:])
		if err == nil {
			return r.wcs[0].Err()
		}
		if !errors.Is(err, rpma.ErrNoCompletion) {
			return err
		}
	}
}

func (r *remoteRing) close(ctx context.Context) error { return r.closers.close(ctx) }
