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

// reach makes the system find the peer's hardware address, by creating an address handle to
// the peer. On RoCE the transition of the queue pair to RTR would find the address too, but
// takes too long for a reactor's turn: the kernel waits up to a second for a peer that does
// not answer (Linux 6.12 drivers/infiniband/core/addr.c, rdma_addr_find_l2_eth_by_grh), and
// libibverbs waits longer where it resolves the address itself. Neither wait can be
// interrupted: if ctx ends first, the look-up continues on a goroutine that Close waits for.
func (rt *Runtime) reach(ctx context.Context, path bootstrap.Path, peer bootstrap.Dest) error {
	asked, err := reactor.DoneOf(ctx)
	if err != nil {
		return err
	}
	attr, err := path.AH(peer)
	if err == nil {
		err = asked.Err() // the look-up may finish before the select below sees the end of ctx
	}
	if err != nil {
		return asked.Cause(ctx, err)
	}
	if err := rt.enter(); err != nil { // keeps Close from finding the domain in use
		return err
	}
	if rt.cfg.stepped { // a stepped runtime has one goroutine
		defer rt.leave()
		return find(rt.pd, &attr)
	}
	found := make(chan error, 1) // buffered: the receiver may have given up
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

// noWay lists the errnos by which the system reports that it finds no route to an address:
// those of the routing table, of the network device, and of a neighbor that does not answer
// (addr_resolve and process_one_req, drivers/infiniband/core/addr.c; libibverbs/neigh.c).
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
