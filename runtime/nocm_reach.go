package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// reach has the system find the peer's hardware address, by making an address handle
// to it. On RoCE the queue pair's way to RTR does that, too, and the kernel waits up
// to a second for a peer that does not answer (Linux 6.12
// drivers/infiniband/core/addr.c, rdma_addr_find_l2_eth_by_grh), libibverbs longer
// where it asks itself: a reactor's turn cannot. Nothing interrupts either, so when
// ctx ends first the look-up is left to a goroutine, which Close waits for.
func (rt *Runtime) reach(ctx context.Context, path bootstrap.Path, peer bootstrap.Dest) error {
	asked, err := reactor.Ask(ctx)
	if err != nil {
		return err
	}
	attr, err := path.AH(peer)
	if err == nil {
		err = asked.Err() // the answer may be there before the select below sees the end of ctx
	}
	if err != nil {
		return asked.Why(ctx, err)
	}
	if err := rt.enter(); err != nil { // or Close would find the domain in use
		return err
	}
	if rt.cfg.stepped { // one goroutine
		defer rt.leave()
		return find(rt.pd, &attr)
	}
	found := make(chan error, 1) // has room: perhaps nobody waits any more
	go func() {
		defer rt.leave()
		found <- find(rt.pd, &attr)
	}()
	select {
	case err := <-found:
		return err
	case <-asked:
		return asked.Why(ctx, asked.Err())
	}
}

// find finds the way to where datagrams could go, and keeps nothing of it.
func find(pd verbs.PD, attr *verbs.AHAttr) error {
	ah, err := pd.CreateAH(attr)
	if errors.Is(err, verbs.ErrNotSupported) {
		return nil // a device without datagrams does not find it this way
	}
	if err != nil {
		return err
	}
	return giveBack(ah)
}

// noWay are the errnos by which the system says that it finds no way to an address:
// the routing table's, the network device's, a neighbour's that does not answer
// (addr_resolve and process_one_req, drivers/infiniband/core/addr.c; libibverbs/
// neigh.c).
var noWay = []error{
	syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.EDESTADDRREQ,
}

// unreachable says of a failure that came of there being no way to the peer that it
// did.
func unreachable(err error) error {
	if slices.ContainsFunc(noWay, func(e error) bool { return errors.Is(err, e) }) && !errors.Is(err, verbs.ErrDeviceRemoved) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}
