package runtime

import "github.com/verbena-rdma/verbena/verbs"

// domain is the protection domain of a shard's queue pairs. (A shard is a reactor with its event
// channel.) If the device supports thread domains, each shard has one. The driver then omits its
// locks, and gives the shard a doorbell register of its own (libmlx5; not measured yet). A thread
// domain requires that threads post one after the other. This holds because only the holder of the
// turn (the goroutine that runs the reactor) posts to these queue pairs. The fields are set when
// the shard is created, and then immutable.
//
// Regions, windows, address handles and shared receive queues are in the runtime's domain
// (Runtime.pd), because any goroutine may use them. The shard's queue pairs can use them, too.
type domain struct {
	pd  verbs.PD // for queue pairs: own, or the runtime's domain if own is nil
	own verbs.PD // a parent domain, made of the runtime's domain and td; or nil
	td  verbs.TD
}

// newDomain makes the domain of a shard, with a thread domain if the device supports them. If the
// thread domain cannot be made, for example for lack of doorbell registers, newDomain ignores the
// failure: it costs only speed.
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

// The method close closes the domain, whose queue pairs must have been closed. It may be called
// again.
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
