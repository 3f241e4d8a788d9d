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

// reach makes the system find the peer's hardware address, by creating an address handle for the
// peer. On RoCE the transition of the queue pair to RTR would find the address too, but could stop
// the reactor too long. The kernel waits up to a second for a peer that does not answer (Linux 6.12
// drivers/infiniband/core/addr.c, rdma_addr_find_l2_eth_by_grh). Where libibverbs resolves the
// address itself, it waits longer. Neither wait can be interrupted. If ctx ends first, reach
// returns, and the look-up continues on a goroutine that Runtime.Close waits for.
func (rt *Runtime) reach(ctx context.Context, path bootstrap.Path, peer bootstrap.Dest) error {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return err
	}
	attr, err := path.AH(peer)
	if err == nil {
		err = asked.Err() // if ctx has ended already, a fast look-up must not hide that
	}
	if err != nil {
		return asked.Cause(ctx, err)
	}
	if err := rt.enter(); err != nil { // Runtime.Close waits for leave before it closes the protection domain
		return err
	}
	if rt.cfg.stepped { // a stepped runtime (of a simulation) has one goroutine
		defer rt.leave()
		return find(rt.pd, &attr)
	}
	found := make(chan error, 1) // buffered: reach may have returned before the look-up ends
	go func() {
		defer rt.leave()
		found <- find(rt.pd, &attr)
	}()
	select {
	case err := <-found:
		return err
	case <-asked:
		return asked.Cause(ctx, asked.Err())
	}
}

// find creates an address handle for attr and closes it again.
func find(pd verbs.PD, attr *verbs.AHAttr) error {
	ah, err := pd.CreateAH(attr)
	if errors.Is(err, verbs.ErrNotSupported) {
		return nil // a device without address handles resolves addresses elsewhere
	}
	if err != nil {
		return err
	}
	return giveBack(ah)
}

// noWay lists the errnos that mean that the system cannot reach an address: it has no route, its
// network device is down, or a neighbor does not answer (addr_resolve and process_one_req,
// drivers/infiniband/core/addr.c; libibverbs/neigh.c).
var noWay = []error{
	syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.EDESTADDRREQ,
}

// unreachable wraps err in ErrUnreachable if there is no route to the peer.
func unreachable(err error) error {
	if slices.ContainsFunc(noWay, func(e error) bool { return errors.Is(err, e) }) && !errors.Is(err, verbs.ErrDeviceRemoved) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}
