package runtime

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// reach makes the system look up the peer's hardware address: it creates an address handle for the
// peer, and closes the handle again. On RoCE the transition of the queue pair to RTR needs this
// address, too. But the transition runs with the reactor's turn held, and a long look-up would then
// delay all connections of the reactor.
//
// If the peer does not answer, a look-up by the kernel takes up to a second (Linux 6.12
// drivers/infiniband/core/addr.c, rdma_addr_find_l2_eth_by_grh). With some devices libibverbs makes
// the look-up, which then may take longer than a second. No look-up can be interrupted. If ctx ends
// during the look-up, reach returns the context's error, and the look-up continues on another
// goroutine. Runtime.Close waits for that goroutine.
func (rt *Runtime) reach(ctx reactor.DoneContext, path bootstrap.Path, peer bootstrap.Dest) error {
	attr, err := path.AH(peer)
	if err == nil {
		err = ctx.Err() // if ctx has ended already, reach fails even if the look-up would be fast
	}
	if err != nil {
		return err
	}
	if err := rt.enter(); err != nil { // Runtime.Close waits for rt.leave() before it closes the protection domain
		return err
	}
	if rt.cfg.stepped { // a stepped runtime (of a simulation) starts no goroutines
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
	case <-ctx:
		return ctx.Err()
	}
}

// find creates an address handle for attr and closes the handle again.
func find(pd verbs.PD, attr *verbs.AHAttr) error {
	ah, err := pd.CreateAH(attr)
	if errors.Is(err, verbs.ErrNotSupported) {
		return nil // without address handles there is no way to make the look-up in advance
	}
	if err != nil {
		return err
	}
	return giveBack(ah)
}

// noWay lists the errnos of a look-up for an address that the system cannot reach: there is no route
// to the address, the network device is down, or a neighbor does not answer (addr_resolve and
// process_one_req, drivers/infiniband/core/addr.c; libibverbs/neigh.c).
var noWay = []error{
	syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.EDESTADDRREQ,
}

// unreachable wraps err in ErrUnreachable if err matches an errno of noWay and does not match
// ErrDeviceRemoved. Otherwise it returns err.
func unreachable(err error) error {
	if slices.ContainsFunc(noWay, func(e error) bool { return errors.Is(err, e) }) && !errors.Is(err, verbs.ErrDeviceRemoved) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}
