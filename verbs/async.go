package verbs

// AsyncEventType is the kind of an asynchronous event.
//
// Implements: enum ibv_event_type.
type AsyncEventType uint32

// The asynchronous events.
const (
	EventCQErr             AsyncEventType = 0
	EventQPFatal           AsyncEventType = 1
	EventQPReqErr          AsyncEventType = 2
	EventQPAccessErr       AsyncEventType = 3
	EventCommEst           AsyncEventType = 4
	EventSQDrained         AsyncEventType = 5
	EventPathMig           AsyncEventType = 6
	EventPathMigErr        AsyncEventType = 7
	EventDeviceFatal       AsyncEventType = 8
	EventPortActive        AsyncEventType = 9
	EventPortErr           AsyncEventType = 10
	EventLIDChange         AsyncEventType = 11
	EventPKeyChange        AsyncEventType = 12
	EventSMChange          AsyncEventType = 13
	EventSRQErr            AsyncEventType = 14
	EventSRQLimitReached   AsyncEventType = 15
	EventQPLastWQEReached  AsyncEventType = 16
	EventClientReregister  AsyncEventType = 17
	EventGIDChange         AsyncEventType = 18
	EventWQFatal           AsyncEventType = 19
	EventDeviceSpeedChange AsyncEventType = 20
)

var asyncNames = map[uint32]string{
	0: "CQ_ERR", 1: "QP_FATAL", 2: "QP_REQ_ERR", 3: "QP_ACCESS_ERR", 4: "COMM_EST",
	5: "SQ_DRAINED", 6: "PATH_MIG", 7: "PATH_MIG_ERR", 8: "DEVICE_FATAL",
	9: "PORT_ACTIVE", 10: "PORT_ERR", 11: "LID_CHANGE", 12: "PKEY_CHANGE",
	13: "SM_CHANGE", 14: "SRQ_ERR", 15: "SRQ_LIMIT_REACHED",
	16: "QP_LAST_WQE_REACHED", 17: "CLIENT_REREGISTER", 18: "GID_CHANGE",
	19: "WQ_FATAL", 20: "DEVICE_SPEED_CHANGE",
}

// String is the name in <infiniband/verbs.h> without its IBV_EVENT_ prefix.
//
// Implements: ibv_event_type_str.
func (t AsyncEventType) String() string { return enumName(asyncNames, "AsyncEventType", uint32(t)) }

// AsyncEvent is one asynchronous event. The type determines the one member that is set: CQ for
// CQ_ERR, QP for QP_ and COMM_EST and SQ_DRAINED, SRQ for SRQ_, Port for the port events.
//
// Implements: struct ibv_async_event.
type AsyncEvent struct {
	Type AsyncEventType
	CQ   CQ
	QP   QP
	SRQ  SRQ
	Port uint8
}

// AsyncChannel delivers the asynchronous events of a context.
type AsyncChannel interface {
	Source
	// Get takes one event; ok is false when there is none.
	// Implements: ibv_get_async_event (on a non-blocking descriptor).
	Get() (ev AsyncEvent, ok bool, err error)
	// Ack acknowledges an event taken; until then Close of its object returns ErrBusy.
	// Implements: ibv_ack_async_event.
	Ack(ev AsyncEvent)
}
