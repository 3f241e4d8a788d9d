package wire

// Parse reads the headers at the start of b into h and returns their length in bytes; payload,
// padding and ICRC follow. b may hold any bytes. On error h is undefined, n is 0, and the error is
// a [*ParseError]. It does not block and keeps no reference to b; it allocates only the error.
func Parse(b []byte, h *Header) (n int, err error) {
	if len(b) < BTHLen {
		return 0, &ParseError{Reason: Truncated, Have: len(b), Want: BTHLen}
	}
	o := Opcode(b[0])
	info := &opcodes[o]
	if info.headerLen == 0 {
		return 0, &ParseError{Reason: UnknownOpcode, Opcode: o, Have: int(o)}
	}
	if len(b) < int(info.headerLen) {
		return 0, &ParseError{Reason: Truncated, Opcode: o, Have: len(b), Want: int(info.headerLen)}
	}
	if v := b[1] & bthTVerMask; v != 0 {
		return 0, &ParseError{Reason: BadVersion, Opcode: o, Have: int(v)}
	}
	*h = Header{}
	h.parseBTH(be.Uint64(b), be.Uint32(b[8:]))
	switch info.ext {
	case 0:
	case ExtRETH:
		h.parseRETH(b[BTHLen:])
	default:
		if !h.parseExt(b[BTHLen:], info.ext) {
			return 0, &ParseError{Reason: BadSyndrome, Opcode: o, Have: int(h.Syndrome)}
		}
	}
	return int(info.headerLen), nil
}

// parseBTH reads a BTH from its first eight bytes and the rest.
func (h *Header) parseBTH(head uint64, psn uint32) {
	flags, qp := uint8(head>>bthFlagsAt), uint32(head)
	h.Opcode = Opcode(head >> bthOpcodeAt)
	h.Solicited = flags&bthSolicited != 0
	h.MigReq = flags&bthMigReq != 0
	h.PadCount = flags >> bthPadShift & bthPadMask
	h.PKey = uint16(head >> bthPKeyAt)
	h.FECN = qp&bthFECN != 0
	h.BECN = qp&bthBECN != 0
	h.DestQP = qp & qpnMask
	h.AckReq = psn&bthAckReq != 0
	h.PSN = NewPSN(psn)
}

func (h *Header) parseRETH(b []byte) {
	_ = b[RETHLen-1]
	h.VA = be.Uint64(b[0:])
	h.RKey = be.Uint32(b[8:])
	h.Length = be.Uint32(b[12:])
}

// parseExt reads the extension headers of ext; the caller has checked that b holds them. It returns
// false for a reserved acknowledge syndrome.
func (h *Header) parseExt(b []byte, ext Ext) bool {
	if ext&ExtXRCETH != 0 {
		h.XRCSRQ = be.Uint32(b) & qpnMask
		b = b[XRCETHLen:]
	}
	if ext&ExtDETH != 0 {
		h.QKey = be.Uint32(b[0:])
		h.SrcQP = be.Uint32(b[4:]) & qpnMask
		b = b[DETHLen:]
	}
	if ext&ExtFETH != 0 {
		v := be.Uint32(b)
		h.FlushPlacement = uint8(v & fethPlacementMask)
		h.FlushSelectivity = uint8(v >> fethSelectivityShift & fethSelectivityMask)
		b = b[FETHLen:]
	}
	if ext&ExtRETH != 0 {
		h.parseRETH(b)
		b = b[RETHLen:]
	}
	if ext&ExtAtomicETH != 0 {
		h.VA = be.Uint64(b[0:])
		h.RKey = be.Uint32(b[8:])
		h.SwapAdd = be.Uint64(b[12:])
		h.Compare = be.Uint64(b[20:])
		b = b[AtomicETHLen:]
	}
	if ext&ExtAETH != 0 {
		v := be.Uint32(b)
		h.Syndrome = Syndrome(v >> psnBits)
		h.MSN = NewPSN(v)
		if !h.Syndrome.Valid() {
			return false
		}
		b = b[AETHLen:]
	}
	if ext&ExtAtomicAck != 0 {
		h.Orig = be.Uint64(b)
		b = b[AtomicAckLen:]
	}
	if ext&ExtImm != 0 {
		h.Imm = be.Uint32(b)
		b = b[ImmLen:]
	}
	if ext&ExtIETH != 0 {
		h.InvKey = be.Uint32(b)
	}
	return true
}
