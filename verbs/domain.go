package verbs

// TD is a thread domain: the promise that one thread at a time uses the objects made in it. A
// device may then omit its locks and give the domain a doorbell of its own. It is used through a
// parent domain:
//
//	td, err := ctx.AllocTD()
//	own, err := pd.AllocParentDomain(td)
//	qp, err := own.CreateQP(&init)
//
// The promise is about time, not about the identity of the thread: the holders of a reactor's
// turn keep it, whichever threads they run on, because each sees the writes of the previous one.
// It covers
//
//   - posts to the queue pairs, and to the shared receive queues, of the domain:
//     one at a time among all of them;
//   - polling a completion queue that receives from such a shared queue complete
//     to, whatever domain their queue pairs are in, and closing those queue pairs:
//     either frees the slot of the receive in the shared queue (rdma-core
//     providers/mlx5/cq.c, mlx5_free_srq_wqe). So a shared queue that several
//     threads poll for must be made outside of any thread domain;
//   - polling the completion queues of its queue pairs, since a library may keep
//     a queue pair and its completions under one lock. No call reports which
//     libraries do.
//
// A completion queue itself belongs to no domain, and one thread at a time polls it anyway
// ([Context.Execute]). A broken promise corrupts queues; some libraries end the process.
//
// Implements: struct ibv_td.
type TD interface {
	Object
	Context() Context
}

// DataOrder is the order in which the data of one message reaches memory; bits.
//
// Implements: enum ibv_query_qp_data_in_order_caps.
type DataOrder uint32

// The orders that may be guaranteed.
const (
	// DataInOrder guarantees order byte by byte from the first to the last: a reader that sees
	// the last byte has the whole message.
	DataInOrder DataOrder = 1 << 0
	// DataInOrder128 guarantees order within each aligned block of 128 bytes.
	DataInOrder128 DataOrder = 1 << 1
)

var dataOrderNames = []string{"WHOLE_MSG", "ALIGNED_128_BYTES"}

// String joins the names of the bits set.
func (o DataOrder) String() string { return flagNames(dataOrderNames, uint32(o)) }

// ECE is a vendor's connection options beyond the standard: enhanced connection establishment.
// Each side reads its own ([QP.QueryECE]), sends it to the other by the means that make the
// connection, and sets the options that both have ([QP.SetECE]) before the queue pair goes to
// INIT. The vendor defines the meaning.
//
// Implements: struct ibv_ece.
type ECE struct {
	Vendor  uint32 // the vendor's IEEE number; 0: none
	Options uint32 // bits
}
