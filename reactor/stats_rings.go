package reactor

import "math/bits"

// The sizes by which Stats.Rings is estimated are those of libmlx5 (rdma-core v65 providers/mlx5/verbs.c): a
// completion, an element, the unit of a send request, and the parts of a send request that are no data.
const (
	ringCompletion = 64
	ringElement    = 16
	ringBlock      = 64
	ringHead       = 48  // control, remote address and atomic
	ringWindowHead = 192 // control and what BIND_MW needs
)

// rings returns Stats.Rings. Only the holder calls it.
func (r *Reactor) rings() (bytes uint64) {
	for _, s := range r.cqs {
		bytes += pow2(s.entries+1) * ringCompletion
	}
	for _, q := range r.queues {
		if q != nil && !q.released() {
			bytes += q.rings()
		}
	}
	return bytes
}

func (q *Queue) rings() (bytes uint64) {
	c := q.cfg.cap()
	if q.cfg.receiving { // each receive has a link to the next
		return pow2(q.cfg.RecvDepth+1) * pow2((q.cfg.MaxSGE+1)*ringElement)
	}
	head := ringHead
	if q.cfg.Windows {
		head = ringWindowHead
	}
	data := max(int(c.MaxSendSGE)*ringElement, roundUp(int(c.MaxInlineData)+4, ringElement)) // 4: the length
	bytes = pow2(int(c.MaxSendWR) * roundUp(head+data, ringBlock))
	if c.MaxRecvWR > 0 {
		bytes += pow2(int(c.MaxRecvWR)) * pow2(int(c.MaxRecvSGE)*ringElement)
	}
	return bytes
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// pow2 returns the smallest power of two that is not less than n, which is at least 1.
func pow2(n int) uint64 { return 1 << bits.Len(uint(n-1)) }
