//go:build linux && cgo && !portable

package ibv

// #include "calls_qp.h"
import "C"

import (
	"unsafe"

	"github.com/verbena-rdma/verbena/verbs"
)

// queryAll selects all attributes except RATE_LIMIT, which the kernel supports for modify only.
const queryAll = C.VB_QP_DEST_QPN<<1 - 1

func gidToC(g *verbs.GID) *C.union_vb_gid { return (*C.union_vb_gid)(unsafe.Pointer(g)) }

func ahToC(a *verbs.AHAttr) (c C.struct_vb_ah_attr) {
	c.grh.dgid = *gidToC(&a.DGID)
	c.grh.flow_label = C.uint32_t(a.FlowLabel)
	c.grh.sgid_index = C.uint8_t(a.SGIDIndex)
	c.grh.hop_limit = C.uint8_t(a.HopLimit)
	c.grh.traffic_class = C.uint8_t(a.TrafficClass)
	c.dlid = C.uint16_t(a.DLID)
	c.sl = C.uint8_t(a.SL)
	c.src_path_bits = C.uint8_t(a.SrcPathBits)
	c.static_rate = C.uint8_t(a.StaticRate)
	c.port_num = C.uint8_t(a.Port)
	if a.DGID != (verbs.GID{}) {
		c.is_global = 1 // a LID alone reaches a port of the same subnet
	}
	return c
}

func ahFromC(c *C.struct_vb_ah_attr) verbs.AHAttr {
	a := verbs.AHAttr{
		DLID: uint16(c.dlid), SL: uint8(c.sl), SrcPathBits: uint8(c.src_path_bits),
		StaticRate: uint8(c.static_rate), Port: uint8(c.port_num),
	}
	if c.is_global != 0 { // otherwise the GRH has no meaning
		a.DGID, a.FlowLabel = *(*verbs.GID)(unsafe.Pointer(&c.grh.dgid)), uint32(c.grh.flow_label)
		a.SGIDIndex, a.HopLimit, a.TrafficClass = uint8(c.grh.sgid_index), uint8(c.grh.hop_limit), uint8(c.grh.traffic_class)
	}
	return a
}

func capToC(a *verbs.QPCap) C.struct_vb_qp_cap {
	return C.struct_vb_qp_cap{
		max_send_wr: C.uint32_t(a.MaxSendWR), max_recv_wr: C.uint32_t(a.MaxRecvWR),
		max_send_sge: C.uint32_t(a.MaxSendSGE), max_recv_sge: C.uint32_t(a.MaxRecvSGE),
		max_inline_data: C.uint32_t(a.MaxInlineData),
	}
}

func capFromC(c *C.struct_vb_qp_cap) verbs.QPCap {
	return verbs.QPCap{
		MaxSendWR: uint32(c.max_send_wr), MaxRecvWR: uint32(c.max_recv_wr),
		MaxSendSGE: uint32(c.max_send_sge), MaxRecvSGE: uint32(c.max_recv_sge),
		MaxInlineData: uint32(c.max_inline_data),
	}
}

func attrToC(a *verbs.QPAttr) C.struct_vb_qp_attr {
	c := C.struct_vb_qp_attr{
		qp_state: C.vb_enum(a.State), cur_qp_state: C.vb_enum(a.CurState), path_mtu: C.vb_enum(a.PathMTU),
		qkey: C.uint32_t(a.QKey), rq_psn: C.uint32_t(a.RQPSN), sq_psn: C.uint32_t(a.SQPSN), dest_qp_num: C.uint32_t(a.DestQPN),
		qp_access_flags: C.uint(a.AccessFlags), cap: capToC(&a.Cap), ah_attr: ahToC(&a.AH), alt_ah_attr: ahToC(&a.AltAH),
		pkey_index: C.uint16_t(a.PKeyIndex), alt_pkey_index: C.uint16_t(a.AltPKeyIndex),
		max_rd_atomic: C.uint8_t(a.MaxRdAtomic), max_dest_rd_atomic: C.uint8_t(a.MaxDestRdAtomic),
		min_rnr_timer: C.uint8_t(a.MinRNRTimer), port_num: C.uint8_t(a.Port), timeout: C.uint8_t(a.Timeout),
		retry_cnt: C.uint8_t(a.RetryCnt), rnr_retry: C.uint8_t(a.RNRRetry),
		alt_port_num: C.uint8_t(a.AltPort), alt_timeout: C.uint8_t(a.AltTimeout), rate_limit: C.uint32_t(a.RateLimit),
	}
	if a.EnSQDAsyncNotify {
		c.en_sqd_async_notify = 1
	}
	return c
}

func attrFromC(c *C.struct_vb_qp_attr) verbs.QPAttr {
	return verbs.QPAttr{
		State: verbs.QPState(c.qp_state), CurState: verbs.QPState(c.cur_qp_state), PathMTU: verbs.MTU(c.path_mtu),
		QKey: uint32(c.qkey), RQPSN: uint32(c.rq_psn), SQPSN: uint32(c.sq_psn), DestQPN: uint32(c.dest_qp_num),
		AccessFlags: verbs.AccessFlags(c.qp_access_flags), Cap: capFromC(&c.cap), AH: ahFromC(&c.ah_attr), AltAH: ahFromC(&c.alt_ah_attr),
		PKeyIndex: uint16(c.pkey_index), AltPKeyIndex: uint16(c.alt_pkey_index),
		EnSQDAsyncNotify: c.en_sqd_async_notify != 0, SQDraining: c.sq_draining != 0,
		MaxRdAtomic: uint8(c.max_rd_atomic), MaxDestRdAtomic: uint8(c.max_dest_rd_atomic),
		MinRNRTimer: uint8(c.min_rnr_timer), Port: uint8(c.port_num), Timeout: uint8(c.timeout),
		RetryCnt: uint8(c.retry_cnt), RNRRetry: uint8(c.rnr_retry),
		AltPort: uint8(c.alt_port_num), AltTimeout: uint8(c.alt_timeout), RateLimit: uint32(c.rate_limit),
	}
}
