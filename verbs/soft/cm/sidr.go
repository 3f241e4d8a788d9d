package cm

import "fmt"

// SIDRREQ is a query for the datagram queue pair that serves a service (IBTA 12.11.1; kernel
// include/rdma/ibta_vol1_c12.h struct cm_sidr_req_msg).
type SIDRREQ struct {
	TID       uint64
	RequestID uint32 // the sender's, in place of a communication ID
	PKey      uint16
	ServiceID uint64
	Private   [PrivateSIDRREQ]byte
}

// SIDRREP is the answer to a SIDRREQ (IBTA 12.11.2; struct cm_sidr_rep_msg).
type SIDRREP struct {
	TID       uint64
	RequestID uint32 // of the query
	Status    SIDRStatus
	InfoLen   uint8  // valid bytes of Info, at most SizeARI
	QPN       uint32 // 24 bits; with SIDRSuccess
	ServiceID uint64
	QKey      uint32
	Info      [SizeARI]byte
	Private   [PrivateSIDRREP]byte
}

// SIDRStatus is the outcome of a service resolution (IBTA table 121; kernel
// include/rdma/ib_cm.h enum ib_cm_sidr_status).
type SIDRStatus uint8

// Values of SIDRStatus.
const (
	SIDRSuccess            SIDRStatus = 0
	SIDRUnsupported        SIDRStatus = 1 // no listener for the service
	SIDRReject             SIDRStatus = 2 // the listener refused
	SIDRNoQP               SIDRStatus = 3
	SIDRRedirect           SIDRStatus = 4
	SIDRUnsupportedVersion SIDRStatus = 5
)

// Attributes of the messages, besides those in mad.go.
const (
	AttrSIDRREQ Attr = 0x17
	AttrSIDRREP Attr = 0x18
)

// Sizes of the private data in bytes.
const (
	PrivateSIDRREQ = 216
	PrivateSIDRREP = 136
)

// Offsets in a SIDR_REQ and a SIDR_REP.
const (
	sidrReqPKey    = offBody + 4
	sidrReqService = offBody + 8
	sidrReqPrivate = offBody + 16

	sidrRepStatus  = offBody + 4
	sidrRepInfoLen = offBody + 5
	sidrRepQPN     = offBody + 8
	sidrRepService = offBody + 12
	sidrRepQKey    = offBody + 20
	sidrRepInfo    = offBody + 24
	sidrRepPrivate = sidrRepInfo + SizeARI
)

var (
	_ [MADSize - sidrReqPrivate - PrivateSIDRREQ]struct{} = [0]struct{}{}
	_ [MADSize - sidrRepPrivate - PrivateSIDRREP]struct{} = [0]struct{}{}
)

// Attr returns AttrSIDRREQ.
func (*SIDRREQ) Attr() Attr { return AttrSIDRREQ }

// Attr returns AttrSIDRREP.
func (*SIDRREP) Attr() Attr { return AttrSIDRREP }

// Put encodes the SIDR_REQ; see [Message]. It cannot fail.
func (q *SIDRREQ) Put(m *MAD) error {
	begin(m, AttrSIDRREQ, q.TID)
	put32(m, offBody, q.RequestID)
	put16(m, sidrReqPKey, q.PKey)
	put64(m, sidrReqService, q.ServiceID)
	copy(m[sidrReqPrivate:], q.Private[:])
	return nil
}

func (q *SIDRREQ) parse(m *MAD) error {
	q.TID = get64(m, offTID)
	q.RequestID = get32(m, offBody)
	q.PKey = get16(m, sidrReqPKey)
	q.ServiceID = get64(m, sidrReqService)
	copy(q.Private[:], m[sidrReqPrivate:])
	return checkID(AttrSIDRREQ, "request ID", q.RequestID)
}

// Put encodes the SIDR_REP; see [Message].
func (p *SIDRREP) Put(m *MAD) error {
	w := widths{msg: AttrSIDRREP}
	w.fit("QPN", uint64(p.QPN), 24)
	if p.InfoLen > SizeARI && w.err == nil {
		w.err = &FieldError{Msg: "SIDR_REP", Field: "additional information length", Value: uint64(p.InfoLen), Want: fmt.Sprintf("at most %d", SizeARI), cause: ErrRange}
	}
	begin(m, AttrSIDRREP, p.TID)
	put32(m, offBody, p.RequestID)
	m[sidrRepStatus], m[sidrRepInfoLen] = uint8(p.Status), p.InfoLen
	put24(m, sidrRepQPN, p.QPN, 0)
	put64(m, sidrRepService, p.ServiceID)
	put32(m, sidrRepQKey, p.QKey)
	copy(m[sidrRepInfo:], p.Info[:])
	copy(m[sidrRepPrivate:], p.Private[:])
	return w.err
}

func (p *SIDRREP) parse(m *MAD) error {
	p.TID = get64(m, offTID)
	p.RequestID = get32(m, offBody)
	p.Status, p.InfoLen = SIDRStatus(m[sidrRepStatus]), m[sidrRepInfoLen]
	p.QPN, p.ServiceID, p.QKey = get24(m, sidrRepQPN), get64(m, sidrRepService), get32(m, sidrRepQKey)
	copy(p.Info[:], m[sidrRepInfo:])
	copy(p.Private[:], m[sidrRepPrivate:])
	switch {
	case p.InfoLen > SizeARI:
		return malformed("SIDR_REP", "additional information length", uint64(p.InfoLen), "at most 72")
	case p.Status == SIDRSuccess:
		if err := checkQPN(AttrSIDRREP, p.QPN); err != nil {
			return err
		}
	}
	return checkID(AttrSIDRREP, "request ID", p.RequestID)
}
