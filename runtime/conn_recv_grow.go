package runtime

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/reactor"
)

// resize adds n receives to the window of c, or takes -n away. The caller has reserved the former, and
// frees the latter. Holder only.
func (p *recvPool) resize(c *Conn, n int) {
	was := c.window.Load()
	now := c.window.Add(int32(n))
	switch {
	case was <= 1 && now > 1:
		p.wide++
		p.startTicks()
	case was > 1 && now <= 1:
		p.wide--
	}
}

// shrink frees n receives of the window of c, which the peer has no credit for. The caller then calls
// Conn.update, because fewer unreturned credits are now half of the window. Holder only.
func (p *recvPool) shrink(c *Conn, n int) {
	p.free.Add(int64(n))
	p.resize(c, -n)
}

// widen makes the window of c larger, if there are receives for it: at once with free ones, and otherwise
// when more were made. Holder only.
//
// A window larger than unreadWindow is of use only if the program takes the messages: it has taken a window
// of them, and not more than half of the window is left.
//
// A connection that does not get its part is denied: the next tick makes larger windows smaller (windowLook.plan).
func (p *recvPool) widen(c *Conn) {
	w := int(c.window.Load())
	most := poolWindow
	if unread := w - c.ledger.unreturned() - c.peerCredits(); unread > w/2 || c.messages() < uint64(unread+w) {
		most = unreadWindow
	}
	inUse := int(p.made.Load()-p.free.Load()) + p.missing - c.missing
	n := windowGrowth(w, most, inUse, p.usable(), int(p.members.Load()), p.denied)
	if c.ledger.keep.Load() > 0 { // it is being made smaller
		return
	}
	if n > 0 {
		p.extend(c, n)
		if c.missing == 0 {
			p.denied = p.denied || int(c.window.Load()) < min(w+n, p.part())
		}
	}
}

// part returns windowPart of the pool.
func (p *recvPool) part() int { return windowPart(p.usable(), int(p.members.Load())) }

// usable returns how many receives shares can have: each connection may have set one slot of the pool aside.
func (p *recvPool) usable() int { return p.depth - int(p.members.Load()) }

// extend makes the window of c larger by n receives. Free receives come at once, and new ones when they
// were made. Holder only.
func (p *recvPool) extend(c *Conn, n int) {
	got := n
	for got > 0 && !p.reserve(got) {
		got = min(got-1, int(p.free.Load()))
	}
	if got > 0 {
		p.resize(c, got)
		c.returnCredits(uint32(got))
		c.update(c.uncovered()) // the peer may wait for them
	}
	p.lack(c, 0) // n includes the receives that an earlier call still waits for
	if n -= got; n > 0 && int(p.made.Load()) < p.usable() {
		p.lack(c, n)
		if !c.wanting {
			c.wanting = true
			p.wanting = append(p.wanting, c)
		}
		p.grow(n)
	}
}

// lack notes that the window of c waits for n receives. Holder only.
func (p *recvPool) lack(c *Conn, n int) {
	p.missing += n - c.missing
	c.missing = n
}

// serveWanting makes the windows larger that waited for receives. If none could be made, for example
// because the memory has a limit, the windows keep their size. Holder only.
func (p *recvPool) serveWanting() {
	all := p.wanting
	p.wanting = nil
	none := p.growFailed.Load() && p.free.Load() == 0
	for i, c := range all {
		all[i] = nil
		n := c.missing
		c.wanting = false
		if p.lack(c, 0); !none && (c.state == connOpen || c.state == connConnecting) {
			p.extend(c, n)
		}
		p.denied = p.denied || none && int(c.window.Load()) < p.part()
	}
}

// grow provisions n receives, on a goroutine, because that may take long.
func (p *recvPool) grow(n int) {
	rt := p.sh.rt
	if rt.cfg.stepped { // a stepped runtime starts no goroutines
		_, err := p.provision(nil, n)
		p.growFailed.Store(err != nil)
		p.sh.r.Schedule(&p.growTask, false)
		return
	}
	if !p.growing.CompareAndSwap(false, true) {
		return // serveWanting asks for the rest
	}
	go func() {
		err := rt.enter()
		if err == nil { // Close waits for it
			_, err = p.provision(nil, n)
			rt.leave()
		}
		p.growFailed.Store(err != nil)
		p.growing.Store(false)
		p.sh.r.Schedule(&p.growTask, false)
	}()
}

// provision makes up to n more receives, posts them, and adds them to the free ones. It returns how many:
// fewer than n if the pool is at its depth. It may block: it may register memory. It waits for memory until asked ends.
func (p *recvPool) provision(asked reactor.DoneContext, n int) (made int, err error) {
	for ; made < n; made++ {
		if ok, err := p.provisionOne(asked, false); !ok {
			return made, err
		}
		p.free.Add(1)
	}
	return made, nil
}

// provisionOne makes and posts a receive, which is in no share and not free. It returns false if the pool is at
// its depth. If claimed is true, it may take a slot that is set aside.
func (p *recvPool) provisionOne(asked reactor.DoneContext, claimed bool) (bool, error) {
	i, ok := p.unusedSlot(claimed)
	if !ok {
		return false, nil
	}
	s := p.slots.make(i)
	buf, err := p.sh.rt.mem.allocOnNode(asked, p.sh.node, p.size)
	if err != nil {
		p.putUnused(i)
		return false, err
	}
	s.i, s.pool, s.buf = i, p, buf
	s.sge[0] = buf.Slice().SGE()
	if err := p.postNew(s); err != nil {
		buf.drop()
		p.putUnused(i)
		return false, err
	}
	p.made.Add(1)
	return true, nil
}

// reserveAnswers reserves 1 to n receives for the answers to large messages of a connection. The first takes the
// place of its claim, which the caller then gives up. It waits for memory until asked ends.
func (p *recvPool) reserveAnswers(asked reactor.DoneContext, n int) (got int, err error) {
	if !p.reserve(1) {
		if ok, err := p.provisionOne(asked, true); !ok {
			return 0, fmt.Errorf("%w: no receive for the answers to large messages", cmp.Or(err, ErrTooMany))
		}
	}
	for got = 1; got < n; got++ {
		if p.reserve(1) {
			continue
		}
		if ok, _ := p.provisionOne(asked, false); !ok {
			break
		}
	}
	return got, nil
}

// claim sets an unused slot aside, or returns false if there is none. unclaim undoes claim.
func (p *recvPool) claim() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.unused) <= p.claims {
		return false
	}
	p.claims++
	return true
}

func (p *recvPool) unclaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims--
}

// unusedSlot takes a slot without a buffer, and putUnused gives it back. If claimed is false, unusedSlot leaves
// the slots that are set aside.
func (p *recvPool) unusedSlot(claimed bool) (i uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.unused); n > p.claims || claimed && n > 0 {
		i, p.unused, ok = p.unused[n-1], p.unused[:n-1], true
	}
	return i, ok
}

func (p *recvPool) putUnused(i uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unused = append(p.unused, i)
}

// postNew posts a new receive, or has open post it.
func (p *recvPool) postNew(s *recvSlot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.opened {
		p.unposted = append(p.unposted, s.i)
		return nil
	}
	return p.post(s)
}

func (p *recvPool) post(s *recvSlot) error {
	return p.s.q.PostRecv(&reactor.Recv{Sink: p, Tag: uint64(s.i)}, s.sge[:], reactor.Block)
}

// postLater submits a receive, to be posted with the next frame of any connection, which may grant the
// credit. Any goroutine may call it.
func (p *recvPool) postLater(s *recvSlot) {
	err := p.s.q.PostRecvLater(&reactor.Recv{Sink: p, Tag: uint64(s.i)}, s.sge[:])
	switch {
	case err == nil:
	case errors.Is(err, reactor.ErrQueueFailed): // the queue is closed
		p.unmake(s)
	default: // there is no memory for the request
		p.sh.r.Defer(func() { p.failed(s, nil, err) })
	}
}
