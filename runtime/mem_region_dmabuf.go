package runtime

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// ImportDMABuf implements [Runtime.ImportDMABuf].
func (m *memory) ImportDMABuf(fd int, offset uint64, size int, access verbs.AccessFlags) (*Region, error) {
	return m.addRegion(size, access, func(r *Region) (err error) {
		// The device requires that the IOVA and the offset in the dma-buf are equal modulo the page
		// size. So use the offset as the IOVA, and not an address of this process.
		if r.own.mr, err = m.pd.RegDMABuf(fd, offset, uint64(size), offset, m.onDevice(access)); err != nil {
			return fmt.Errorf("dma-buf: %w", err)
		}
		r.mr, r.deviceLen, r.addr = r.own.mr, size, r.own.mr.IOVA()
		return nil
	})
}

// prefetchPiece is the maximum length, in bytes, of one scatter-gather element of Prefetch.
// Prefetch splits a longer range, because the length of an element has only 32 bits.
const prefetchPiece = 1 << 30

// Prefetch asks the device to fault in a part of an on-demand region: n bytes from offset off. If
// write is set, the device prepares the pages for writing, otherwise for reading. The next
// operations on these bytes then need not wait for page faults. Prefetch blocks until the device
// has the pages. Later the system may evict the pages again.
//
// Errors: [ErrInvalid] if the region is not on demand, or if write is set and the region is not
// writable; [ErrNotSupported] if the device accepts no advice; *[RangeError]; [ErrReleased] after
// Close.
//
// Implements: ibv_advise_mr with IBV_ADVISE_MR_FLAG_FLUSH.
func (r *Region) Prefetch(off, n int, write bool) error {
	advice := verbs.AdvisePrefetch
	if write {
		advice = verbs.AdvisePrefetchWrite
	}
	return r.Advise(off, n, advice, verbs.AdviseFlush)
}

// Advise is Prefetch with any advice and flags. Without verbs.AdviseFlush it does not wait for the device,
// which then reports no errors.
//
// Implements: ibv_advise_mr.
func (r *Region) Advise(off, n int, advice verbs.Advice, flags verbs.AdviseFlags) error {
	s, err := r.Slice(off, n)
	if err != nil {
		return err
	}
	if r.access&verbs.AccessOnDemand == 0 {
		return fmt.Errorf("%w: the region is not on demand", verbs.ErrInvalid)
	}
	if n == 0 {
		return nil
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.lease.End()
	var list []verbs.SGE
	for at := 0; at < n; {
		piece := min(n-at, prefetchPiece)
		list = append(list, verbs.SGE{Addr: s.addr + uint64(at), Length: uint32(piece), LKey: s.lkey})
		at += piece
	}
	return r.m.pd.AdviseMR(advice, flags, list)
}
