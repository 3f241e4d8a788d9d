package runtime

import "github.com/verbena-rdma/verbena/verbs"

// domain is the protection domain of a shard's queue pairs. (A shard is a reactor with its event
// channel.) If the device supports thread domains, each shard has a thread domain. The driver then
// omits its locks, and gives the shard a doorbell register of its own (libmlx5; not measured yet).
// In return, no two threads may post at the same time. This holds because only the holder of the
// turn (the goroutine that runs the reactor) posts to these queue pairs. The fields are set when
// the shard is created, and then immutable.
//
// Any goroutine may use regions, windows, address handles and shared receive queues. So these
// objects are in the runtime's domain (Runtime.pd), where the driver uses its locks. The queue
// pairs of all shards can use them.
type domain struct {
	pd  verbs.PD // for queue pairs: equal to own, or to the runtime's domain if own is nil
	own verbs.PD // a parent domain, made of the runtime's domain and td; or nil
	td  verbs.TD
}

// newDomain makes the domain of a shard, with a thread domain if the device supports them. If the
// thread domain cannot be made, for example for lack of doorbell registers, newDomain returns the
// runtime's domain. That costs only speed.
func newDomain(rt *Runtime) (d domain, err error) {
	d.pd = rt.pd
	if rt.cfg.NoThreadDomains {
		return d, nil
	}
	td, why := rt.dev.AllocTD()
	if why != nil {
		return d, nil //nolint:nilerr // as above
	}
	d.td = td
	own, why := rt.pd.AllocParentDomain(td)
	if why != nil {
		return d, d.close()
	}
	d.pd, d.own = own, own
	return d, nil
}

// The method close closes the parent domain and the thread domain, if there are any. The shard's
// queue pairs must have been closed. The method may be called again.
func (d *domain) close() error {
	if d.own != nil {
		if err := d.own.Close(); err != nil {
			return err
		}
	}
	if d.td == nil {
		return nil
	}
	return d.td.Close()
}
