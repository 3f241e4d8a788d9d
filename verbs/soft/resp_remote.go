package soft

import "github.com/verbena-rdma/verbena/verbs"

// wordLen is the length in bytes of the word of an atomic or ATOMIC_WRITE.
const wordLen = 8

// target is memory that a peer addressed by key and address.
type target struct {
	mr    *memoryRegion
	at    uint64 // a request address in mr
	guard *guard // for packets that point into it
}

// bytes returns the first n bytes, which remote has checked.
func (t *target) bytes(n uint32) []byte {
	b, _ := t.mr.view(t.at, n)
	return b
}

// remote checks a key and range that the peer gave: it checks as opened does, and that the key
// covers the range. Like resolve, it is called anew for every packet, to detect a key that is
// invalidated in the middle of a message.
func (q *queuePair) remote(key uint32, addr uint64, n uint32, need verbs.AccessFlags) (t target, err error) {
	s, err := q.opened(key, need)
	if err != nil {
		return t, err
	}
	return s.within(addr, n)
}

// opened checks that a key belongs to a region of this domain, or to a window bound here (a type
// 2 window: through this queue pair), and that it permits need. A window's own permissions count:
// binding has checked them against the region.
func (q *queuePair) opened(key uint32, need verbs.AccessFlags) (*keySlot, error) {
	s := q.dev.keys.find(keyIndex(key))
	if s == nil || s.key != key {
		return nil, errKey
	}
	var access verbs.AccessFlags
	if w := s.mw; w != nil {
		if w.mr == nil || w.pd != q.pd || (w.kind == verbs.MWType2 && w.qp != q) {
			return nil, errKey
		}
		access = w.access
	} else if access = s.mr.access; s.mr.pd != q.pd {
		return nil, errKey
	}
	if access&need != need {
		return nil, errAccess
	}
	return s, nil
}

// region returns the memory behind an opened key.
func (s *keySlot) region() *memoryRegion {
	if s.mw != nil {
		return s.mw.mr
	}
	return s.mr
}

// whole returns the memory, and its length in bytes, that an opened key opens: a region, or a window's part of one.
func (s *keySlot) whole() (addr, n uint64) {
	if w := s.mw; w != nil {
		return w.mr.addr + (w.addr - w.mr.iova), w.length
	}
	return s.mr.addr, uint64(len(s.mr.data))
}

// within returns the n bytes at request address addr, if all of them are in the region or window.
func (s *keySlot) within(addr uint64, n uint32) (t target, err error) {
	if m := s.mr; m != nil {
		if off := addr - m.iova; off > uint64(len(m.data)) || uint64(n) > uint64(len(m.data))-off {
			return t, errRange
		}
		return target{m, addr, &m.guard}, nil
	}
	w := s.mw
	off := addr
	if w.access&verbs.AccessZeroBased == 0 {
		off -= w.addr // wraps to a huge value when addr is below
	}
	if off > w.length || uint64(n) > w.length-off {
		return t, errRange
	}
	return target{w.mr, w.addr + off, w.guard}, nil
}
