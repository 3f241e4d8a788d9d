package interop

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// mckeyPause is the pause of mckey.c after the join: a receiver that was started at the same time joins meanwhile.
const mckeyPause = 3 * time.Second

// mckey is mckey.c, without -l: a queue pair has no creation flags.
func mckey(ctx context.Context, lib *rdmacm.Library, ready func(), args ...string) (err error) {
	t := cmatest{lib: lib}
	f := t.flags()
	group, src := "", f.String("b", "", "")
	f.StringVar(&group, "m", "", "")
	unmapped := false
	f.Func("M", "", func(s string) error {
		group, unmapped = s, true
		return nil
	})
	sender, sendOnly := f.Bool("s", false, ""), f.Bool("o", false, "")
	pause := f.Duration("pause", mckeyPause, "not in mckey.c")
	if err = f.Parse(args); err != nil {
		return err
	}
	to, err := netip.ParseAddr(group)
	if err != nil {
		return err
	}
	var from netip.AddrPort
	if *src != "" {
		addr, err := netip.ParseAddr(*src)
		if err != nil {
			return err
		}
		from = netip.AddrPortFrom(addr, 0)
	}
	defer func() { err = errors.Join(err, t.destroyNodes()) }()
	if err = t.allocNodes(true); err != nil {
		return err
	}
	for _, n := range t.nodes {
		if *src != "" {
			if err = n.id.BindAddr(from); err != nil {
				return err
			}
		}
		if unmapped {
			err = n.joins(ctx, to, unmapped, *sender, *sendOnly)
		} else {
			err = n.id.ResolveAddr(ctx, from, netip.AddrPortFrom(to, 0), resolveTimeout)
		}
		if err != nil {
			return err
		}
	}
	err = t.connectEvents(ctx, func(ev *rdmacm.Event) error {
		n := ev.ID.Context.(*node)
		switch ev.Type {
		case verbs.CMAddrResolved:
			return n.joins(ctx, to, unmapped, *sender, *sendOnly)
		case verbs.CMMulticastJoin:
			return n.reach(&ev.UD)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer t.drain(ctx)()
	ready()
	select {
	case <-time.After(*pause):
	case <-ctx.Done():
	}
	if *sender {
		for _, n := range t.nodes {
			err = errors.Join(err, n.sendAll(ctx))
		}
	} else {
		err = t.pollCQs(ctx)
	}
	for _, n := range t.nodes {
		if unmapped {
			err = errors.Join(err, n.id.LeaveMulticastIB(verbs.IBAddr{GID: verbs.GIDFromAddr(to)}))
		} else {
			err = errors.Join(err, n.id.LeaveMulticast(to))
		}
	}
	return err
}

// joins is addr_handler of mckey.c. The group of -M is not resolved, and is named by its GID (get_dst_addr).
func (n *node) joins(ctx context.Context, group netip.Addr, unmapped, sender, sendOnly bool) error {
	if err := n.verifyTestParams(); err != nil {
		return err
	}
	if err := n.init(); err != nil {
		return err
	}
	if !sender {
		if err := n.postRecvs(); err != nil {
			return err
		}
	}
	membership := rdmacm.MCFullMember
	if sendOnly {
		membership = rdmacm.MCSendOnlyFullMember
	}
	if unmapped {
		return n.id.JoinMulticastIB(ctx, verbs.IBAddr{GID: verbs.GIDFromAddr(group)}, membership, n)
	}
	return n.id.JoinMulticastEx(ctx, group, membership, n)
}

// sendAll sends, and waits for the last datagram. mckey.c does not wait, and Soft-RoCE loses what it has not sent when
// the queue pair is destroyed (Linux 6.12 rxe_req.c, rxe_requester).
func (n *node) sendAll(ctx context.Context) error {
	if err := n.postSends(0, verbs.SendSignaled); err != nil || n.test.count == 0 {
		return err
	}
	wc, err := n.cq.Next(ctx)
	return errors.Join(err, wc.Err())
}

// drain acknowledges events until its result is called: cma_thread of mckey.c.
func (t *cmatest) drain(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			ev, err := t.channel.GetEvent(ctx)
			if err != nil {
				return
			}
			ev.Ack()
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
