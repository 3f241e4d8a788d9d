package runtime

import "github.com/verbena-rdma/verbena/verbs"

// domain is the protection domain of a shard's queue pairs. (A shard is a reactor with its event
// channel.) If the device supports thread domains, each shard has a thread domain. The driver then
// takes no locks for the queue pairs of the shard, and gives the shard a doorbell register of its own
// (libmlx5; not measured yet). In return, no two threads may post to these queue pairs at the same
// time. The runtime meets this condition, because only the holder of the turn (the goroutine that
// runs the reactor) posts to them. The fields are set when the shard is created, and never change
// after that.
//
// Any goroutine may use regions, windows, address handles and shared receive queues. So these
// objects are in the runtime's protection domain (Runtime.pd), where the driver takes its locks. The
// queue pairs of all shards can use these objects.
type domain struct {
	pd  verbs.PD // for queue pairs: equal to own, or to Runtime.pd if own is nil
	own verbs.PD // the parent domain, made of Runtime.pd and td; nil if there is none
	td  verbs.TD // the thread domain; nil if there is none
}

// newDomain makes the domain of a shard, with a thread domain if the device supports thread domains.
// If the thread domain or the parent domain cannot be made, for example for lack of doorbell
// registers, the shard uses Runtime.pd. The shard is then slower, but works.
func newDomain(rt *Runtime) (d domain, err error) {
	d.pd = rt.pd
	if rt.cfg.NoThreadDomains {
		return d, nil
	}
	td, why := rt.dev.AllocTD()
	if why != nil {
		return d, nil //nolint:nilerr // without a thread domain the shard uses Runtime.pd
	}
	d.td = td
	own, why := rt.pd.AllocParentDomain(td)
	if why != nil {
		return d, d.close()
	}
	d.pd, d.own = own, own
	return d, nil
}

// domain.close closes the parent domain and the thread domain, if they exist. The shard's queue pairs
// must have been closed. close may be called again.
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
