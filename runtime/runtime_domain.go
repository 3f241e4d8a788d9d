package runtime

import "github.com/verbena-rdma/verbena/verbs"

// domain is where a shard's queue pairs are made. They are posted to by the holder
// of the shard's turn alone, one turn after the other, which is what a thread
// domain promises: where the device has them each shard has one, and its driver
// leaves out its locks and gives the shard a doorbell register of its own
// (libmlx5; measured nowhere yet). It is made when the shard is and immutable from
// then on, but for close.
//
// Regions, windows, address handles and shared receive queues stay in the
// runtime's domain, which any goroutine uses; they go together.
type domain struct {
	pd  verbs.PD // the runtime's, or one that stands for it
	own verbs.PD // that one; nil where there is none
	td  verbs.TD
}

// newDomain makes a thread domain if the device has them. That it cannot be had,
// for whatever reason, costs speed only: a device has as many as it has doorbells
// to give.
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

// close gives the domain back, when its queue pairs are gone. It may be repeated.
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
