package verbs

// XRCD is an extended-connection domain: queue pairs of type XRC_RECV and the shared receive
// queues that senders name by number.
//
// Implements: struct ibv_xrcd.
type XRCD interface {
	Object
	Context() Context
	// CreateQP makes an XRC_RECV queue pair: it has no queues, no completion queue and no
	// protection domain of its own; arriving messages go to the XRC shared receive queue that the
	// sender names. Only init.Type and init.UserData are read. Implements: ibv_create_qp_ex with
	// IBV_QP_INIT_ATTR_XRCD.
	CreateQP(init *QPInitAttr) (QP, error)
	// OpenQP makes another handle on an XRC_RECV queue pair of the domain; the queue pair lives
	// until its last handle is closed. Implements: ibv_open_qp.
	OpenQP(num uint32, userData uint64) (QP, error)
}

// SRQAttr describes a shared receive queue. With XRCD set it is an XRC one
// (ibv_create_srq_ex, IBV_SRQT_XRC), which completes to CQ; the other kind
// completes to the receive completion queue of the queue pair that took the
// receive, and leaves both nil.
//
// Implements: struct ibv_srq_attr, struct ibv_srq_init_attr_ex.
type SRQAttr struct {
	MaxWR    uint32
	MaxSGE   uint32
	Limit    uint32 // entries left below which one SRQ_LIMIT_REACHED is raised; 0: none
	UserData uint64
	XRCD     XRCD
	CQ       CQ
}

// SRQ is a shared receive queue.
//
// Implements: struct ibv_srq.
type SRQ interface {
	Object
	Context() Context
	UserData() uint64
	// Num is the number by which XRC senders name it (SendWR.RemoteSRQN); 0 if it is not an XRC
	// queue. Implements: ibv_get_srq_num.
	Num() uint32
	// SetLimit arms the limit event once more. Implements: ibv_modify_srq with
	// IBV_SRQ_LIMIT.
	SetLimit(limit uint32) error
	// Resize changes MaxWR and keeps the posted receives; ErrInvalid when there are more of them.
	// The caller holds the turn: posting meanwhile is a race. Implements: ibv_modify_srq with
	// IBV_SRQ_MAX_WR.
	Resize(maxWR uint32) error
	// Query reads the attributes. Implements: ibv_query_srq.
	Query() (SRQAttr, error)
}
