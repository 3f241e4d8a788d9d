package nth

import (
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// world is the state shared by the wrappers of one provider: the plan, and the wrappers by
// object, so that an object that comes up twice (in an event) has the same wrapper each time.
type world struct {
	plan  *Plan
	turns sync.Pool // *frame

	mu   sync.Mutex  // guards made; never held while calling
	made map[any]any // inner object to wrapper
}

// known returns the wrapper of inner; it makes one for a new object.
func known[W any](w *world, inner any, wrap func() W) W {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v, ok := w.made[inner]; ok {
		return v.(W)
	}
	v := wrap()
	w.made[inner] = v
	return v
}

// forget drops the wrapper of an object that was closed.
func (w *world) forget(inner any) {
	w.mu.Lock()
	delete(w.made, inner)
	w.mu.Unlock()
}

// close closes an object and forgets it.
func (w *world) close(op string, inner verbs.Object) error {
	return w.plan.closes(op, inner, func() error {
		err := inner.Close()
		if err == nil {
			w.forget(inner)
		}
		return err
	})
}

func (w *world) context(c verbs.Context) verbs.Context {
	if c == nil {
		return nil
	}
	return known(w, c, func() *context { return &context{Context: c, w: w} })
}

func (w *world) cq(c verbs.CQ) verbs.CQ {
	if c == nil {
		return nil
	}
	return known(w, c, func() *cq { return &cq{CQ: c, w: w} })
}

func (w *world) qp(q verbs.QP) verbs.QP {
	if q == nil {
		return nil
	}
	return known(w, q, func() *qp { return &qp{QP: q, w: w} })
}

func (w *world) srq(s verbs.SRQ) verbs.SRQ {
	if s == nil {
		return nil
	}
	return known(w, s, func() *srq { return &srq{SRQ: s, w: w} })
}

func (w *world) xrcd(x verbs.XRCD) verbs.XRCD {
	if x == nil {
		return nil
	}
	return known(w, x, func() *xrcd { return &xrcd{XRCD: x, w: w} })
}

func (w *world) id(id verbs.CMID) verbs.CMID {
	if id == nil {
		return nil
	}
	return known(w, id, func() *cmID { return &cmID{CMID: id, w: w} })
}

// The other direction: the objects of the wrapped provider. An object of another provider is
// passed down unchanged, to be refused there.

func innerCQ(c verbs.CQ) verbs.CQ {
	if x, ok := c.(*cq); ok {
		return x.CQ
	}
	return c
}

func innerQP(q verbs.QP) verbs.QP {
	if x, ok := q.(*qp); ok {
		return x.QP
	}
	return q
}

func innerSRQ(s verbs.SRQ) verbs.SRQ {
	if x, ok := s.(*srq); ok {
		return x.SRQ
	}
	return s
}

func innerXRCD(d verbs.XRCD) verbs.XRCD {
	if x, ok := d.(*xrcd); ok {
		return x.XRCD
	}
	return d
}

func innerID(id verbs.CMID) verbs.CMID {
	if x, ok := id.(*cmID); ok {
		return x.CMID
	}
	return id
}

// innerInit returns a copy with the objects unwrapped.
func innerInit(init *verbs.QPInitAttr) *verbs.QPInitAttr {
	if init == nil {
		return nil
	}
	in := *init
	in.SendCQ, in.RecvCQ, in.SRQ, in.XRCD = innerCQ(init.SendCQ), innerCQ(init.RecvCQ), innerSRQ(init.SRQ), innerXRCD(init.XRCD)
	return &in
}
