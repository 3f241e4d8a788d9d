package wire

import "encoding/binary"

var be = binary.BigEndian

// Encode writes the headers at the start of into and returns their length in bytes. Fields wider
// than their place on the wire are truncated. A nonexistent opcode encodes to 0 bytes. It does not
// block or allocate.
func (h *Header) Encode(into *[MaxHeader]byte) int {
	info := opcodes[h.Opcode]
	if info.headerLen == 0 {
		return 0
	}
	b := into[:]
	h.encodeBTH(b)
	switch info.ext {
	case 0:
	case ExtRETH: // the two most frequent shapes have fast paths
		h.encodeRETH(b[BTHLen:])
	case ExtAETH:
		h.encodeAETH(b[BTHLen:])
	default:
		h.encodeExt(b[BTHLen:], info.ext)
	}
	return int(info.headerLen)
}

// Append appends the headers to dst. A nonexistent opcode appends nothing.
func (h *Header) Append(dst []byte) []byte {
	var b [MaxHeader]byte
	n := h.Encode(&b)
	return append(dst, b[:n]...)
}

func (h *Header) encodeBTH(b []byte) {
	flags := h.PadCount & bthPadMask << bthPadShift
	if h.Solicited {
		flags |= bthSolicited
	}
	if h.MigReq {
		flags |= bthMigReq
	}
	qp := h.DestQP & qpnMask
	if h.FECN {
		qp |= bthFECN
	}
	if h.BECN {
		qp |= bthBECN
	}
	psn := uint32(h.PSN) & psnMask
	if h.AckReq {
		psn |= bthAckReq
	}
	putBTH(b, h.Opcode, flags, h.PKey, qp, psn)
}

// putBTH writes a BTH: its first eight bytes as one word, the rest as another.
func putBTH(b []byte, o Opcode, flags uint8, pkey uint16, qp, psn uint32) {
	_ = b[BTHLen-1]
	be.PutUint64(b, uint64(o)<<bthOpcodeAt|uint64(flags)<<bthFlagsAt|uint64(pkey)<<bthPKeyAt|uint64(qp))
	be.PutUint32(b[8:], psn)
}

func (h *Header) encodeRETH(b []byte) { putRETH(b, h.VA, h.RKey, h.Length) }

func putRETH(b []byte, va uint64, rkey, length uint32) {
	_ = b[RETHLen-1]
	be.PutUint64(b[0:], va)
	be.PutUint32(b[8:], rkey)
	be.PutUint32(b[12:], length)
}

func (h *Header) encodeAETH(b []byte) { putAETH(b, h.Syndrome, h.MSN) }

func putAETH(b []byte, s Syndrome, msn PSN) { be.PutUint32(b, uint32(s)<<psnBits|uint32(msn)&psnMask) }

// encodeExt writes the extension headers of ext one after the other.
func (h *Header) encodeExt(b []byte, ext Ext) {
	if ext&ExtXRCETH != 0 {
		be.PutUint32(b, h.XRCSRQ&qpnMask)
		b = b[XRCETHLen:]
	}
	if ext&ExtDETH != 0 {
		be.PutUint32(b[0:], h.QKey)
		be.PutUint32(b[4:], h.SrcQP&qpnMask)
		b = b[DETHLen:]
	}
	if ext&ExtFETH != 0 {
		be.PutUint32(b, uint32(h.FlushPlacement&fethPlacementMask)|
			uint32(h.FlushSelectivity&fethSelectivityMask)<<fethSelectivityShift)
		b = b[FETHLen:]
	}
	if ext&ExtRETH != 0 {
		h.encodeRETH(b)
		b = b[RETHLen:]
	}
	if ext&ExtAtomicETH != 0 {
		be.PutUint64(b[0:], h.VA)
		be.PutUint32(b[8:], h.RKey)
		be.PutUint64(b[12:], h.SwapAdd)
		be.PutUint64(b[20:], h.Compare)
		b = b[AtomicETHLen:]
	}
	if ext&ExtAETH != 0 {
		h.encodeAETH(b)
		b = b[AETHLen:]
	}
	if ext&ExtAtomicAck != 0 {
		be.PutUint64(b, h.Orig)
		b = b[AtomicAckLen:]
	}
	if ext&ExtImm != 0 {
		be.PutUint32(b, h.Imm)
		b = b[ImmLen:]
	}
	if ext&ExtIETH != 0 {
		be.PutUint32(b, h.InvKey)
	}
}
