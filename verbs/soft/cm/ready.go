package cm

// RTU reports to the passive side that the connection is in use (IBTA 12.6.9).
type RTU struct {
	TID      uint64
	LocalID  uint32
	RemoteID uint32
	Private  [PrivateRTU]byte
}

// DREQ requests the end of a connection (IBTA 12.6.10; struct cm_dreq_msg).
type DREQ struct {
	TID       uint64
	LocalID   uint32
	RemoteID  uint32
	RemoteQPN uint32 // 24 bits: the receiver's queue pair
	Private   [PrivateDREQ]byte
}

// DREP answers a DREQ (IBTA 12.6.11).
type DREP struct {
	TID      uint64
	LocalID  uint32
	RemoteID uint32
	Private  [PrivateDREP]byte
}

const (
	rtuPrivate  = offBody + 8 // also of a DREP
	dreqQPN     = offBody + 8
	dreqPrivate = offBody + 12
)

var (
	_ [MADSize - rtuPrivate - PrivateRTU]struct{}   = [0]struct{}{}
	_ [MADSize - rtuPrivate - PrivateDREP]struct{}  = [0]struct{}{}
	_ [MADSize - dreqPrivate - PrivateDREQ]struct{} = [0]struct{}{}
)

// Attr returns AttrRTU.
func (*RTU) Attr() Attr { return AttrRTU }

// Attr returns AttrDREQ.
func (*DREQ) Attr() Attr { return AttrDREQ }

// Attr returns AttrDREP.
func (*DREP) Attr() Attr { return AttrDREP }

// Put encodes the RTU; see [Message]. It cannot fail.
func (r *RTU) Put(m *MAD) error {
	begin(m, AttrRTU, r.TID)
	put32(m, offBody, r.LocalID)
	put32(m, offBody+4, r.RemoteID)
	copy(m[rtuPrivate:], r.Private[:])
	return nil
}

func (r *RTU) parse(m *MAD) error {
	r.TID = get64(m, offTID)
	r.LocalID, r.RemoteID = get32(m, offBody), get32(m, offBody+4)
	copy(r.Private[:], m[rtuPrivate:])
	return checkIDs(AttrRTU, r.LocalID, r.RemoteID)
}

// Put encodes the DREQ; see [Message].
func (d *DREQ) Put(m *MAD) error {
	w := widths{msg: AttrDREQ}
	w.fit("remote QPN", uint64(d.RemoteQPN), 24)
	begin(m, AttrDREQ, d.TID)
	put32(m, offBody, d.LocalID)
	put32(m, offBody+4, d.RemoteID)
	put24(m, dreqQPN, d.RemoteQPN, 0)
	copy(m[dreqPrivate:], d.Private[:])
	return w.err
}

func (d *DREQ) parse(m *MAD) error {
	d.TID = get64(m, offTID)
	d.LocalID, d.RemoteID = get32(m, offBody), get32(m, offBody+4)
	d.RemoteQPN = get24(m, dreqQPN)
	copy(d.Private[:], m[dreqPrivate:])
	return checkIDs(AttrDREQ, d.LocalID, d.RemoteID)
}

// Put encodes the DREP; see [Message]. It cannot fail.
func (d *DREP) Put(m *MAD) error {
	begin(m, AttrDREP, d.TID)
	put32(m, offBody, d.LocalID)
	put32(m, offBody+4, d.RemoteID)
	copy(m[rtuPrivate:], d.Private[:])
	return nil
}

func (d *DREP) parse(m *MAD) error {
	d.TID = get64(m, offTID)
	d.LocalID, d.RemoteID = get32(m, offBody), get32(m, offBody+4)
	copy(d.Private[:], m[rtuPrivate:])
	return checkIDs(AttrDREP, d.LocalID, d.RemoteID)
}
