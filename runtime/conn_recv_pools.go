package runtime

import (
	"errors"

	"github.com/verbena-rdma/verbena/reactor"
)

// joinPool returns a pool for a connection with messages of at most size bytes, with the header, in which
// it has reserved the smallest share. It may block: it may register memory and enter the kernel. It waits for other
// goroutines that do until asked ends.
func (s *shard) joinPool(asked reactor.DoneContext, size int) (*recvPool, error) {
	if err := s.poolMu.LockUntil(asked); err != nil {
		return nil, err
	}
	defer s.poolMu.Unlock()
	for _, p := range s.pools[size] {
		if ok, err := p.join(asked); ok || err != nil {
			return p, err
		}
	}
	depth := min(s.rt.srqs, poolDepth, max(poolBytes/size, minDepth))
	shared, err := s.prepareShared(depth, 1)
	if err != nil {
		return nil, err
	}
	p := &recvPool{sh: s, s: shared, size: size, depth: depth, spare: max(min(spareBytes/size, maxSpare), minShare), slots: newRecvSlots(depth), unused: make([]uint32, depth)}
	p.growTask.Fn = p.serveWanting
	for i := range p.unused {
		p.unused[i] = uint32(depth - 1 - i)
	}
	if s.pools == nil {
		s.pools = map[int][]*recvPool{}
	}
	s.pools[size] = append(s.pools[size], p)
	_, err = p.join(asked)
	return p, err
}

// open makes the shared receive queue, unless it exists, and posts the receives that were made before.
// Holder only.
func (p *recvPool) open() error {
	if p.s.q.SRQ() == nil {
		if err := p.s.open(); err != nil { // without mu, because it may run a pass
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = true
	for n := len(p.unposted); n > 0; n-- { // after an error the next open goes on
		if err := p.post(p.slots.at(p.unposted[n-1])); err != nil {
			return err
		}
		p.unposted = p.unposted[:n-1]
	}
	return nil
}

// discardUnopened frees a pool whose queue was never made. Its connections have ended.
func (p *recvPool) discardUnopened() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.unposted {
		p.slots.at(i).buf.drop()
	}
	p.made.Add(-int64(len(p.unposted)))
	p.unposted = nil
	if p.opened {
		return nil
	}
	err := p.s.q.Discard()
	p.opened = err == nil // otherwise the next Close tries again
	return err
}

// discardPools frees the pools whose queue was never made. The connections have ended.
func (s *shard) discardPools() (err error) {
	s.poolMu.Lock()
	defer s.poolMu.Unlock()
	for _, pools := range s.pools {
		for _, p := range pools {
			err = errors.Join(err, p.discardUnopened())
		}
	}
	return err
}

// pooledRecvs returns the number of receives of the shard's pools.
func (s *shard) pooledRecvs() (n int) {
	s.poolMu.Lock()
	defer s.poolMu.Unlock()
	for _, pools := range s.pools {
		for _, p := range pools {
			n += int(p.made.Load())
		}
	}
	return n
}
