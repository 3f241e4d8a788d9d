package cm

import "fmt"

// REP accepts a REQ (IBTA 12.6.8; struct cm_rep_msg).
type REP struct {
	TID                uint64
	Options            uint32 // as in a REQ
	LocalID            uint32
	RemoteID           uint32
	Vendor             uint32 // 24 bits, in three parts
	QKey               uint32
	QPN                uint32 // 24 bits
	LocalEECN          uint32 // 24 bits; of an XRC_RECV queue pair its number
	PSN                uint32 // 24 bits: the first PSN that the receiver of this message sends
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetAckDelay     uint8 // 5 bits
	Failover           uint8 // 2 bits
	FlowControl        bool
	RNRRetry           uint8 // 3 bits: the active side's RNR retries
	SRQ                bool
	CAGUID             uint64
	Private            [PrivateREP]byte
}

// Offsets in a REP. The last bytes of the words of the QPN, the EECN and the PSN are the vendor ID, from its top
// (ibta_vol1_c12.h CM_REP_VENDOR_ID_H, _M and _L).
const (
	repQKey    = offBody + 8
	repQPN     = offBody + 12
	repEECN    = offBody + 16
	repPSN     = offBody + 20
	repResp    = offBody + 24
	repDepth   = offBody + 25
	repDelay   = offBody + 26
	repRNR     = offBody + 27
	repGUID    = offBody + 28
	repPrivate = offBody + 36
)

var _ [MADSize - repPrivate - PrivateREP]struct{} = [0]struct{}{}

// Attr returns AttrREP.
func (*REP) Attr() Attr { return AttrREP }

// Put encodes the REP; see [Message].
func (p *REP) Put(m *MAD) error {
	w := widths{msg: AttrREP}
	w.fit("vendor ID", uint64(p.Vendor), 24)
	w.fit("local QPN", uint64(p.QPN), 24)
	w.fit("local EECN", uint64(p.LocalEECN), 24)
	w.fit("starting PSN", uint64(p.PSN), 24)
	w.fit("target ACK delay", uint64(p.TargetAckDelay), 5)
	w.fit("failover accepted", uint64(p.Failover), 2)
	w.fit("RNR retry count", uint64(p.RNRRetry), 3)
	begin(m, AttrREP, p.TID)
	put32(m, offModifier, p.Options)
	put32(m, offBody, p.LocalID)
	put32(m, offBody+4, p.RemoteID)
	put32(m, repQKey, p.QKey)
	put24(m, repQPN, p.QPN, uint8(p.Vendor>>16))
	put24(m, repEECN, p.LocalEECN, uint8(p.Vendor>>8))
	put24(m, repPSN, p.PSN, uint8(p.Vendor))
	m[repResp], m[repDepth] = p.ResponderResources, p.InitiatorDepth
	m[repDelay] = p.TargetAckDelay<<3 | p.Failover<<1 | bit(p.FlowControl, 0)
	m[repRNR] = p.RNRRetry<<5 | bit(p.SRQ, 4)
	put64(m, repGUID, p.CAGUID)
	copy(m[repPrivate:], p.Private[:])
	return w.err
}

func (p *REP) parse(m *MAD) error {
	p.TID = get64(m, offTID)
	p.LocalID, p.RemoteID = get32(m, offBody), get32(m, offBody+4)
	p.Options = get32(m, offModifier)
	p.Vendor = uint32(m[repQPN+3])<<16 | uint32(m[repEECN+3])<<8 | uint32(m[repPSN+3])
	p.QKey = get32(m, repQKey)
	p.QPN, p.LocalEECN, p.PSN = get24(m, repQPN), get24(m, repEECN), get24(m, repPSN)
	p.ResponderResources, p.InitiatorDepth = m[repResp], m[repDepth]
	p.TargetAckDelay, p.Failover, p.FlowControl = m[repDelay]>>3, m[repDelay]>>1&3, m[repDelay]&1 != 0
	p.RNRRetry, p.SRQ = m[repRNR]>>5, m[repRNR]&0x10 != 0
	p.CAGUID = get64(m, repGUID)
	copy(p.Private[:], m[repPrivate:])
	if err := checkIDs(AttrREP, p.LocalID, p.RemoteID); err != nil {
		return err
	}
	return checkQPN(AttrREP, max(p.QPN, p.LocalEECN)) // onREP knows which
}

func checkIDs(a Attr, local, remote uint32) error {
	if err := checkID(a, "local communication ID", local); err != nil {
		return err
	}
	return checkID(a, "remote communication ID", remote)
}

// Answered is the message that a REJ or an MRA answers.
type Answered uint8

// Values of Answered.
const (
	AnswersREQ   Answered = 0
	AnswersREP   Answered = 1
	AnswersOther Answered = 2 // for an MRA: a LAP
)

// Reason is the reason of a refusal (IBTA table 102; kernel include/rdma/ib_cm.h enum
// ib_cm_rej_reason).
type Reason uint16

// Reasons that this machine gives. A peer may give any.
const (
	RejNoResources      Reason = 3
	RejTimeout          Reason = 4
	RejInvalidCommID    Reason = 6
	RejInvalidServiceID Reason = 8
	RejInvalidTransport Reason = 9
	RejStaleConn        Reason = 10
	RejInvalidMTU       Reason = 26 // ARI: the largest MTU that is accepted
	RejConsumer         Reason = 28
	RejVendorOption     Reason = 35
)

// REJ refuses a REQ or a REP, or ends an attempt that failed (IBTA 12.6.7; struct cm_rej_msg).
// LocalID is 0 when the sender has no connection.
type REJ struct {
	TID      uint64
	LocalID  uint32
	RemoteID uint32 // 0 when the sender never got a REP
	Answers  Answered
	ARILen   uint8 // valid bytes of ARI, at most SizeARI
	Reason   Reason
	ARI      [SizeARI]byte
	Private  [PrivateREJ]byte
}

// Offsets in a REJ.
const (
	rejAnswers = offBody + 8
	rejARILen  = offBody + 9
	rejReason  = offBody + 10
	rejARI     = offBody + 12
	rejPrivate = rejARI + SizeARI
)

var _ [MADSize - rejPrivate - PrivateREJ]struct{} = [0]struct{}{}

// Attr returns AttrREJ.
func (*REJ) Attr() Attr { return AttrREJ }

// Put encodes the REJ; see [Message].
func (r *REJ) Put(m *MAD) error {
	w := widths{msg: AttrREJ}
	w.fit("message rejected", uint64(r.Answers), 2)
	if r.ARILen > SizeARI && w.err == nil {
		w.err = &FieldError{Msg: "REJ", Field: "reject info length", Value: uint64(r.ARILen), Want: fmt.Sprintf("at most %d", SizeARI), cause: ErrRange}
	}
	begin(m, AttrREJ, r.TID)
	put32(m, offBody, r.LocalID)
	put32(m, offBody+4, r.RemoteID)
	m[rejAnswers] = uint8(r.Answers) << 6
	m[rejARILen] = r.ARILen << 1
	put16(m, rejReason, uint16(r.Reason))
	copy(m[rejARI:], r.ARI[:])
	copy(m[rejPrivate:], r.Private[:])
	return w.err
}

func (r *REJ) parse(m *MAD) error {
	r.TID = get64(m, offTID)
	r.LocalID, r.RemoteID = get32(m, offBody), get32(m, offBody+4)
	r.Answers = Answered(m[rejAnswers] >> 6)
	r.ARILen = m[rejARILen] >> 1
	r.Reason = Reason(get16(m, rejReason))
	copy(r.ARI[:], m[rejARI:])
	copy(r.Private[:], m[rejPrivate:])
	switch {
	case r.Answers > AnswersOther:
		return malformed("REJ", "message rejected", uint64(r.Answers), "0 to 2")
	case r.ARILen > SizeARI:
		return malformed("REJ", "reject info length", uint64(r.ARILen), "at most 72")
	case r.LocalID == 0 && r.RemoteID == 0:
		return malformed("REJ", "communication IDs", 0, "at least one other than 0")
	}
	return nil
}

// MRA reports that the peer's REQ or REP arrived and the answer takes a while (IBTA 12.6.6; struct
// cm_mra_msg).
type MRA struct {
	TID            uint64
	LocalID        uint32
	RemoteID       uint32
	Answers        Answered
	ServiceTimeout uint8 // 5 bits: the time limit of the answer
	Private        [PrivateMRA]byte
}

const mraPrivate = offBody + 10

var _ [MADSize - mraPrivate - PrivateMRA]struct{} = [0]struct{}{}

// Attr returns AttrMRA.
func (*MRA) Attr() Attr { return AttrMRA }

// Put encodes the MRA; see [Message].
func (a *MRA) Put(m *MAD) error {
	w := widths{msg: AttrMRA}
	w.fit("message MRAed", uint64(a.Answers), 2)
	w.fit("service timeout", uint64(a.ServiceTimeout), 5)
	begin(m, AttrMRA, a.TID)
	put32(m, offBody, a.LocalID)
	put32(m, offBody+4, a.RemoteID)
	m[offBody+8] = uint8(a.Answers) << 6
	m[offBody+9] = a.ServiceTimeout << 3
	copy(m[mraPrivate:], a.Private[:])
	return w.err
}

func (a *MRA) parse(m *MAD) error {
	a.TID = get64(m, offTID)
	a.LocalID, a.RemoteID = get32(m, offBody), get32(m, offBody+4)
	a.Answers, a.ServiceTimeout = Answered(m[offBody+8]>>6), m[offBody+9]>>3
	copy(a.Private[:], m[mraPrivate:])
	if a.Answers > AnswersOther {
		return malformed("MRA", "message MRAed", uint64(a.Answers), "0 to 2")
	}
	return checkIDs(AttrMRA, a.LocalID, a.RemoteID)
}
