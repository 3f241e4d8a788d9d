package runtime

import "github.com/verbena-rdma/verbena/verbs"

// domain is the protection domain of a shard's queue pairs. Only the holder of the shard's
// turn posts to them, one pass after the other, which is the guarantee that a thread
// domain requires. Where the device supports thread domains each shard has one: its driver
// then omits its locks and gives the shard a doorbell register of its own (libmlx5; not
// measured yet). The fields are set with the shard's creation and then immutable.
//
// Regions, windows, address handles and shared receive queues stay in the
// runtime's domain, which any goroutine uses; queue pairs of a shard can use them.
type domain struct {
	pd  verbs.PD // the runtime's domain, or own
	own verbs.PD // the parent domain; nil without a thread domain
	td  verbs.TD
}

// newDomain makes a thread domain if the device supports them. It ignores a
// failure, such as a lack of doorbell registers, because that costs only speed.
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

// close closes the domain after its queue pairs. It may be repeated.
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
