package verbs

// TD is a thread domain: the promise that what is made in it is used by one
// thread at a time. A device may then leave out its locks, and give the domain a
// doorbell of its own. It is used by way of a parent domain:
//
//	td, err := ctx.AllocTD()
//	own, err := pd.AllocParentDomain(td)
//	qp, err := own.CreateQP(&init)
//
// The promise is about time, not about which thread: turns that follow one
// another, each seeing what the last one did, keep it from whichever threads they
// come. It covers
//
//   - posts to the queue pairs, and to the shared receive queues, of the domain:
//     of any two, one at a time;
//   - polling a completion queue to which receives out of such a shared queue
//     complete, of whichever domain their queue pairs are, and closing those queue
//     pairs: either gives the receive's place back, in the shared queue (rdma-core
//     providers/mlx5/cq.c, mlx5_free_srq_wqe). So a shared queue that several
//     threads poll for is made outside of any thread domain;
//   - polling the completion queues of its queue pairs, since a library may keep
//     a queue pair and its completions under one lock. No call tells which do.
//
// A completion queue itself belongs to no domain, and is polled by one thread at a
// time anyway ([Context.Execute]). To break the promise corrupts queues; some
// libraries end the process.
//
// Implements: struct ibv_td.
type TD interface {
	Object
	Context() Context
}

// DataOrder says in which order the data of one message reaches memory; bits.
//
// Implements: enum ibv_query_qp_data_in_order_caps.
type DataOrder uint32

// The orders that may be guaranteed.
const (
	// DataInOrder: byte by byte from the first to the last, so that who sees the
	// last byte has all of the message.
	DataInOrder DataOrder = 1 << 0
	// DataInOrder128: so within each aligned block of 128 bytes.
	DataInOrder128 DataOrder = 1 << 1
)

var dataOrderNames = []string{"WHOLE_MSG", "ALIGNED_128_BYTES"}

// String joins the names of the bits set.
func (o DataOrder) String() string { return flagNames(dataOrderNames, uint32(o)) }

// ECE is what a vendor's devices agree on for a connection beyond the standard:
// enhanced connection establishment. Each side reads its own ([QP.QueryECE]),
// gives it to the other by whatever way the connection is made, and sets what
// both have ([QP.SetECE]) before the queue pair goes to INIT. What it means is
// the vendor's.
//
// Implements: struct ibv_ece.
type ECE struct {
	Vendor  uint32 // the vendor's IEEE number; 0: none
	Options uint32 // bits
}
