package verbstest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// fullAccess is the access of regions and queue pairs unless a case restricts it.
const fullAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// scratchSize is the memory for the work requests and elements that a case posts and the
// completions that it polls.
const scratchSize = 4 << 20

// End is one end of a case: a protection domain on the endpoint's context and
// the memory for its work requests.
type End struct {
	c       *Case
	name    string
	ep      *Endpoint
	ctx     verbs.Context
	gid     verbs.GID
	lid     uint16
	addr    netip.Addr
	pd      verbs.PD
	scratch *mem.Bump
	events  []verbs.AsyncEvent // taken and acknowledged
}

func newEnd(c *Case, name string, ep *Endpoint) *End {
	e := &End{c: c, name: name, ep: ep, ctx: ep.Context, addr: ep.Addr}
	a, err := mem.Map(scratchSize, mem.Options{})
	c.must(err, "mapping scratch memory")
	c.defers(a.Unmap)
	e.scratch = mem.NewBump(a)
	e.gid, err = e.ctx.QueryGID(ep.Port, int(ep.GIDIndex))
	c.must(err, "query_gid")
	port, err := e.ctx.QueryPort(ep.Port)
	c.must(err, "query_port")
	e.lid = port.LID
	e.drainAsync() // drop the events of earlier cases
	e.events = nil
	e.pd = e.newPD()
	return e
}

func (e *End) newPD() verbs.PD {
	pd, err := e.ctx.AllocPD()
	e.c.must(err, "alloc_pd")
	e.c.defers(pd.Close)
	return pd
}

// drainAsync takes and acknowledges the pending asynchronous events.
func (e *End) drainAsync() {
	if e == nil {
		return
	}
	for {
		ev, ok, err := e.ctx.Async().Get()
		if err != nil || !ok {
			return
		}
		e.events = append(e.events, ev)
		e.ctx.Async().Ack(ev)
	}
}

// isAbout reports whether an event is about an object; nil is the port or device.
func isAbout(ev verbs.AsyncEvent, obj verbs.Object) bool {
	switch {
	case ev.QP != nil:
		return ev.QP == obj
	case ev.CQ != nil:
		return ev.CQ == obj
	case ev.SRQ != nil:
		return ev.SRQ == obj
	}
	return obj == nil
}

// untilEvent waits for an asynchronous event of one of the types about an
// object; nil is the port or the device.
func (e *End) untilEvent(about verbs.Object, types ...verbs.AsyncEventType) verbs.AsyncEvent {
	e.c.t.Helper()
	var found verbs.AsyncEvent
	e.c.until(fmt.Sprintf("asynchronous event %v", types), func() bool {
		e.drainAsync()
		for _, ev := range e.events {
			if slices.Contains(types, ev.Type) && isAbout(ev, about) {
				found = ev
				return true
			}
		}
		return false
	})
	return found
}

// count settles and returns the number of events of a type about an object so far.
func (e *End) count(about verbs.Object, t verbs.AsyncEventType) (n int) {
	e.c.settle()
	e.drainAsync()
	for _, ev := range e.events {
		if ev.Type == t && isAbout(ev, about) {
			n++
		}
	}
	return n
}

// takeEvent waits for an event of the type and leaves it unacknowledged.
func (e *End) takeEvent(about verbs.Object, t verbs.AsyncEventType) (found verbs.AsyncEvent) {
	e.c.t.Helper()
	e.c.until(fmt.Sprintf("asynchronous event %v", t), func() bool {
		ev, ok, err := e.ctx.Async().Get()
		e.c.must(err, "get_async_event")
		if !ok {
			return false
		}
		if ev.Type == t && isAbout(ev, about) {
			found = ev
			return true
		}
		e.ctx.Async().Ack(ev)
		return false
	})
	return found
}

// alloc takes scratch memory.
func (e *End) alloc(size int) uint64 {
	at, ok := e.scratch.Alloc(size, 8)
	if !ok {
		e.c.failf("the case used up its scratch memory")
	}
	return at
}

// Region is registered memory of one end.
type Region struct {
	end   *End
	arena *mem.Arena
	mr    verbs.MR
	n     int
	shut  bool
}

// region maps n bytes and registers them with full access.
func (e *End) region(n int) *Region { return e.regionOf(e.pd, n, fullAccess, 0) }

// regionOf maps n bytes and registers them; iova 0 means the memory's own address.
func (e *End) regionOf(pd verbs.PD, n int, access verbs.AccessFlags, iova uint64) *Region {
	e.c.t.Helper()
	a, err := mem.Map(max(n, 1), mem.Options{})
	e.c.must(err, "mapping %d bytes", n)
	e.c.defers(a.Unmap)
	if iova == 0 {
		iova = a.Addr()
	}
	mr, err := pd.RegMR(a.Addr(), uint64(n), iova, access)
	e.c.must(err, "reg_mr of %d bytes with %v", n, access)
	r := &Region{end: e, arena: a, mr: mr, n: n}
	e.c.defers(r.close)
	e.c.regions = append(e.c.regions, r)
	return r
}

// close deregisters the region.
func (r *Region) close() error {
	if r.shut {
		return nil
	}
	err := r.mr.Close()
	r.shut = err == nil
	return err
}

// dereg deregisters now, waiting while the device still uses the region.
func (r *Region) dereg() {
	r.end.c.t.Helper()
	r.end.c.until("dereg_mr of an unused region", func() bool {
		err := r.close()
		if err != nil && !errors.Is(err, verbs.ErrBusy) {
			r.end.c.failf("dereg_mr: %v", err)
		}
		return err == nil
	})
}

func (r *Region) bytes() []byte { return r.arena.Bytes()[:r.n] }

// at returns the address by which work requests name byte off.
func (r *Region) at(off int) uint64 { return r.mr.IOVA() + uint64(off) }

// sge returns the range [off, off+n) as a scatter-gather element.
func (r *Region) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.at(off), Length: uint32(n), LKey: r.mr.LKey()}
}

// all returns the whole region as one element.
func (r *Region) all() verbs.SGE { return r.sge(0, r.n) }

// word returns the 8 bytes at off in host order.
func (r *Region) word(off int) *uint64 {
	w, ok := r.arena.Word(r.arena.Addr() + uint64(off))
	if !ok {
		r.end.c.failf("no word at offset %d", off)
	}
	return w
}

// fill writes the pattern of seed.
func (r *Region) fill(seed int) *Region { fill(r.bytes(), seed); return r }

// poison marks all bytes as not written.
func (r *Region) poison() *Region { mem.Poison(r.bytes()); return r }

// fill writes bytes that differ by position and seed, and never the poison.
func fill(b []byte, seed int) {
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		if b[i] = byte(x); b[i] == mem.PoisonByte {
			b[i]++
		}
	}
}
