package runtime

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// ImportDMABuf is [Runtime.ImportDMABuf].
func (m *memory) ImportDMABuf(fd int, offset uint64, size int, access verbs.AccessFlags) (*Region, error) {
	return m.addRegion(size, access, func(r *Region) (err error) {
		// Addresses are offsets in the buffer: they have the place in their page that
		// the device wants, and name nothing of this process.
		if r.own.mr, err = m.pd.RegDMABuf(fd, offset, uint64(size), offset, access); err != nil {
			return fmt.Errorf("dma-buf: %w", err)
		}
		r.mr, r.far, r.addr = r.own.mr, size, r.own.mr.IOVA()
		return nil
	})
}

// prefetchPiece is the most that one element of an advice takes: a round number
// below 32 bits of length.
const prefetchPiece = 1 << 30

// Prefetch brings n bytes from off of a region on demand in, for the device to
// read, or with write to write, so that the first operations there need not wait
// for pages. It is an advice: pages may go away again. It blocks until the device
// has them.
//
// Errors: [ErrInvalid] for a region that is not on demand, or may not be
// written; [ErrNotSupported] where the device takes no advice; *[RangeError];
// [ErrReleased] after Close.
//
// Implements: ibv_advise_mr with IBV_ADVISE_MR_FLAG_FLUSH.
func (r *Region) Prefetch(off, n int, write bool) error {
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
	advice := verbs.AdvisePrefetch
	if write {
		advice = verbs.AdvisePrefetchWrite
	}
	var list []verbs.SGE
	for at := 0; at < n; {
		piece := min(n-at, prefetchPiece)
		list = append(list, verbs.SGE{Addr: s.addr + uint64(at), Length: uint32(piece), LKey: s.lkey})
		at += piece
	}
	return r.m.pd.AdviseMR(advice, verbs.AdviseFlush, list)
}
