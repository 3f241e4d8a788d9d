package verbstest

import "github.com/verbena-rdma/verbena/verbs"

// bindable is the access of a region that windows are bound to.
const bindable = fullAccess | verbs.AccessMWBind

// The permissions a window can give.
const (
	mwWrite = verbs.AccessRemoteWrite
	mwRead  = verbs.AccessRemoteRead
	mwAll   = verbs.AccessRemoteWrite | verbs.AccessRemoteRead
)

var (
	bindOps = verbs.Opcodes(verbs.WRBindMW, verbs.WRRDMAWrite)
	mw1Only = needs{caps: verbs.CapMemWindow, ops: bindOps}
	mw2Only = needs{caps: verbs.CapMemWindow2B, ops: bindOps}
	mw2Inv  = needs{caps: verbs.CapMemWindow2B | verbs.CapMemMgt, ops: bindOps | verbs.Opcodes(verbs.WRLocalInv)}
	sendInv = needs{caps: verbs.CapMemWindow2B | verbs.CapMemMgt, ops: bindOps | verbs.Opcodes(verbs.WRSendWithInv)}
)

// mw makes a memory window.
func (e *End) mw(t verbs.MWType) verbs.MW {
	e.c.t.Helper()
	w, err := e.pd.AllocMW(t)
	e.c.must(err, "alloc_mw of type %d", t)
	e.c.first = append(e.c.first, w.Close)
	return w
}

// target returns poisoned memory that windows can be bound to.
func (e *End) target(n int) *Region {
	e.c.t.Helper()
	return e.regionOf(e.pd, n, bindable, 0).poison()
}

// bindTo binds a window, waits for the completion and returns the key.
func (q *QP) bindTo(w verbs.MW, r *Region, off, n int, access verbs.AccessFlags) uint32 {
	q.c.t.Helper()
	req := bindOf(800, w, r, off, n, access)
	q.send(req)
	q.sent(q.scq.one(), 800, verbs.WCBindMW)
	if w.RKey() != req.rkey {
		q.c.failf("a window bound with key %#x says %#x", req.rkey, w.RKey())
	}
	return req.rkey
}

// invalidateHere invalidates a key by LOCAL_INV and waits for the completion.
func (q *QP) invalidateHere(key uint32) {
	q.c.t.Helper()
	q.send(localInvOf(801, key))
	q.sent(q.scq.one(), 801, verbs.WCLocalInv)
}

// reaches writes through a key and checks that the bytes arrive.
func (q *QP) reaches(r *Region, off int, key uint32, src *Region) {
	q.c.t.Helper()
	q.send(writeOf(900, r, off, src.all()).key(key))
	q.sent(q.scq.one(), 900, verbs.WCRDMAWrite)
	q.c.same(r.bytes()[off:off+src.n], src.bytes(), "a WRITE through a memory window")
}

// isRefused sends a request that the peer must refuse.
func (q *QP) isRefused(r SR, what string) {
	q.c.t.Helper()
	q.send(r)
	w := q.scq.one()
	if w.Status != verbs.WCRemAccessErr {
		q.c.failf("%s completed as %s, want REM_ACCESS_ERR", what, show(w))
	}
}

// windowed returns a fresh link and a window of B of n bytes at off of fresh memory, bound with
// its own queue pair, and its key.
func (c *Case) windowed(t verbs.MWType, off, n int, access verbs.AccessFlags) (a, b *QP, w verbs.MW, r *Region, key uint32) {
	c.t.Helper()
	a, b = c.link()
	w, r = c.B.mw(t), c.B.target(4096)
	key = b.bindTo(w, r, off, n, access)
	return a, b, w, r, key
}
