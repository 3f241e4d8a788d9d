//go:build linux && cgo && !portable

package ibv

// #include "calls_cm.h"
import "C"

import (
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// translate copies an event, acknowledges it to librdmacm and takes the steps that librdmacm
// takes for a queue pair of its own. It returns false for an event that is not delivered to the
// user.
func (ch *cmChannel) translate(e *C.struct_vb_rdma_cm_event) (verbs.CMEvent, bool) {
	ev := verbs.CMEvent{Type: verbs.CMEventType(e.event), Status: int(e.status)}
	request := ev.Type == verbs.CMConnectRequest
	named := e.id
	if request {
		named = e.listen_id
	}
	id := ch.p.cmIDs.find(uint64(C.shim_id_context(named)))
	if ev.Type == verbs.CMDeviceRemoval {
		releaseRemovedContext(e.id) // also for an identifier being closed: it may be the last
	}
	if id == nil {
		made := e.id
		C.shim_ack_cm_event(ch.t, e)
		if request {
			C.shim_destroy_id(ch.t, made) // its listener is closed; the peer is rejected
		}
		return ev, false
	}
	ev.ID = id
	var group uint64
	switch {
	case ev.Type == verbs.CMMulticastJoin || ev.Type == verbs.CMMulticastError:
		group = uint64(C.shim_join_context(e)) // in place of private data
		ev.UD = udFromC(C.shim_event_ud(e))
	case id.datagrams():
		ev.UD = udFromC(C.shim_event_ud(e))
		ev.UD.PrivateData = copyOut(C.shim_event_ud(e).private_data, C.shim_event_ud(e).private_data_len)
	default:
		ev.Conn = connFromC(C.shim_event_conn(e))
	}
	if request {
		child := newCMID(ch, id.ps, id.kind, id.UserData())
		child.c = e.id
		C.shim_id_set_context(e.id, C.uint64_t(child.num)) // it has its listener's so far
		child.recordOffer(&ev.Conn)
		ev.ID, ev.ListenID = child, id
		ch.p.cmIDs.count(child)
		child.refresh()
	} else {
		id.refresh()
	}
	C.shim_ack_cm_event(ch.t, e)
	if !request && !id.react(&ev, group) {
		ch.Ack(ev)
		return ev, false
	}
	return ev, true
}

// react moves the queue pair of the identifier, as rdma_get_cm_event of librdmacm/cma.c does for
// its own. It returns false for an event that only repeats an earlier failure.
func (id *cmID) react(ev *verbs.CMEvent, group uint64) bool {
	id.api.Lock()
	defer id.api.Unlock()
	switch ev.Type {
	case verbs.CMConnectResponse:
		if id.qp == nil || id.held {
			id.state = idReplied // the user prepares its queue pair, or has the time for its steps; then Accept establishes
			return true
		}
		if errno := id.establish(); errno != 0 {
			ev.Type, ev.Status = verbs.CMConnectError, -int(errno)
			return true
		}
		ev.Type = verbs.CMEstablished
	case verbs.CMEstablished:
		id.state = idConnected
	case verbs.CMRejected, verbs.CMUnreachable, verbs.CMConnectError:
		if id.broken && ev.Type == verbs.CMRejected {
			return false
		}
		if id.state == idConnected && ev.Type == verbs.CMRejected {
			// The passive side destroyed its identifier before it had this side's RTU: then Linux
			// sends a REJ, not a DREQ (cm.c, cm_destroy_id in IB_CM_REP_SENT). Here the connection
			// was established, so that it has been disconnected.
			*ev = verbs.CMEvent{Type: verbs.CMDisconnected, ID: ev.ID}
			id.state = idLeft
			return true
		}
		id.ended()
	case verbs.CMDisconnected:
		if id.broken {
			return false
		}
		// As in librdmacm, Disconnect moves the queue pair: acknowledgements may still be in the
		// network. The state changes also when this end has called Disconnect: the peer's request
		// may have crossed ours, and only another rdma_disconnect answers it (Linux cm.c,
		// cm_dreq_handler in IB_CM_DREQ_SENT).
		id.state = idLeft
	case verbs.CMMulticastJoin, verbs.CMMulticastError:
		if errno := id.joined(group, ev); errno != 0 {
			ev.Type, ev.Status = verbs.CMMulticastError, -int(errno)
		}
	}
	return true
}

// ended records that a connection was not made.
func (id *cmID) ended() {
	if id.qp != nil {
		id.qp.fail()
	}
	id.state = idEnded
}

// copyOut copies private data.
func copyOut(p unsafe.Pointer, n C.uint8_t) []byte {
	if p == nil || n == 0 {
		return nil
	}
	return C.GoBytes(p, C.int(n))
}

func connFromC(c *C.struct_vb_rdma_conn_param) verbs.ConnParam {
	return verbs.ConnParam{
		PrivateData:        copyOut(c.private_data, c.private_data_len),
		ResponderResources: uint8(c.responder_resources), InitiatorDepth: uint8(c.initiator_depth),
		FlowControl: c.flow_control != 0, RetryCount: uint8(c.retry_count), RNRRetryCount: uint8(c.rnr_retry_count),
		SRQ: c.srq != 0, QPNum: uint32(c.qp_num),
	}
}

func udFromC(c *C.struct_vb_rdma_ud_param) verbs.UDParam {
	return verbs.UDParam{AH: ahFromC(&c.ah_attr), QPNum: uint32(c.qp_num), QKey: uint32(c.qkey)}
}

// find returns the identifier with a number and counts its event; nil when it is closed or
// closing.
func (r *cmRegistry) find(num uint64) *cmID {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.m[num]
	if id != nil {
		id.unacked++
	}
	return id
}

// count counts an event of a known identifier.
func (r *cmRegistry) count(id *cmID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id.unacked++
}
