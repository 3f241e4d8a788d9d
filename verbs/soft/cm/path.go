package cm

import "github.com/verbena-rdma/verbena/verbs"

// Path is the path in a REQ (IBTA 12.6.5). A RoCE port uses only the addresses and the ACK timeout,
// and carries the other fields.
type Path struct {
	LocalLID     uint16
	RemoteLID    uint16
	LocalGID     verbs.GID
	RemoteGID    verbs.GID
	FlowLabel    uint32 // 20 bits
	Rate         uint8  // 6 bits
	TrafficClass uint8
	HopLimit     uint8
	SL           uint8 // 4 bits
	SubnetLocal  bool
	AckTimeout   uint8 // 5 bits, code as verbs.AckTimeout
}

// sizePath is the size of a path in a REQ, in bytes.
const sizePath = 44

func (p *Path) put(m *MAD, o int, w *widths) {
	w.fit("flow label", uint64(p.FlowLabel), 20)
	w.fit("packet rate", uint64(p.Rate), 6)
	w.fit("SL", uint64(p.SL), 4)
	w.fit("local ACK timeout", uint64(p.AckTimeout), 5)
	put16(m, o, p.LocalLID)
	put16(m, o+2, p.RemoteLID)
	copy(m[o+4:], p.LocalGID[:])
	copy(m[o+20:], p.RemoteGID[:])
	put32(m, o+36, p.FlowLabel<<12|uint32(p.Rate&0x3f))
	m[o+40], m[o+41] = p.TrafficClass, p.HopLimit
	m[o+42] = p.SL<<4 | bit(p.SubnetLocal, 3)
	m[o+43] = p.AckTimeout << 3
}

func (p *Path) get(m *MAD, o int) {
	p.LocalLID, p.RemoteLID = get16(m, o), get16(m, o+2)
	copy(p.LocalGID[:], m[o+4:])
	copy(p.RemoteGID[:], m[o+20:])
	p.FlowLabel, p.Rate = get32(m, o+36)>>12, m[o+39]&0x3f
	p.TrafficClass, p.HopLimit = m[o+40], m[o+41]
	p.SL, p.SubnetLocal = m[o+42]>>4, m[o+42]&8 != 0
	p.AckTimeout = m[o+43] >> 3
}
