package wire

// Only is the header of the most frequent packets, one-packet SENDs and WRITEs of a reliable
// connection, in fewer fields than [Header]: on the default partition, with only a RETH after the
// BTH of a WRITE. It may be copied.
type Only struct {
	DestQP    uint32 // 24 bits
	PSN       PSN
	Length    uint32 // of the message, which is the payload, in bytes
	Solicited bool
	AckReq    bool

	// WRITE only
	VA   uint64
	RKey uint32
}

// EncodeSend writes the header of a SEND and returns its length: the encoding of a [Header] with
// opcode [RCSendOnly], MigReq and the padding of Length. It does not block or allocate.
func (o *Only) EncodeSend(into *[MaxHeader]byte) int {
	putBTH(into[:], RCSendOnly, o.flags(), DefaultPKey, o.DestQP&qpnMask, o.psn())
	return BTHLen
}

// EncodeWrite is EncodeSend for a WRITE, opcode [RCWriteOnly].
func (o *Only) EncodeWrite(into *[MaxHeader]byte) int {
	putBTH(into[:], RCWriteOnly, o.flags(), DefaultPKey, o.DestQP&qpnMask, o.psn())
	putRETH(into[BTHLen:], o.VA, o.RKey, o.Length)
	return BTHLen + RETHLen
}

// EncodeAck writes the headers of an acknowledgement, whose opcode is [RCAcknowledge] or
// [XRCAcknowledge], to the queue pair destQP (24 bits) and returns their length: the encoding of a
// [Header] on the default partition with MigReq. It does not block or allocate.
func EncodeAck(into *[MaxHeader]byte, op Opcode, destQP uint32, psn PSN, s Syndrome, msn PSN) int {
	putBTH(into[:], op, bthMigReq, DefaultPKey, destQP&qpnMask, uint32(psn)&psnMask)
	putAETH(into[BTHLen:], s, msn)
	return BTHLen + AETHLen
}

func (o *Only) flags() uint8 {
	f := bthMigReq | PadLen(int(o.Length))<<bthPadShift
	if o.Solicited {
		f |= bthSolicited
	}
	return f
}

func (o *Only) psn() uint32 {
	p := uint32(o.PSN) & psnMask
	if o.AckReq {
		p |= bthAckReq
	}
	return p
}

// onlyMask and onlyPlain select and give the required bits in the first eight bytes of a BTH,
// besides the opcode: version 0, and the default partition.
const (
	onlyMask  = bthTVerMask<<bthFlagsAt | 0xffff<<bthPKeyAt
	onlyPlain = DefaultPKey << bthPKeyAt
)

// Parse reads b, all headers of a packet, if they are those of a one-packet RC SEND or WRITE on the
// default partition, and returns the opcode; false for any other packet, which [Parse] handles. b
// may hold any bytes; a packet accepted here is accepted by [Parse] with the same fields. Length
// does not change for a SEND, whose header lacks it. It does not block or allocate, and keeps no
// reference to b.
func (o *Only) Parse(b []byte) (op Opcode, ok bool) {
	if len(b) < BTHLen {
		return 0, false
	}
	head, psn := be.Uint64(b), be.Uint32(b[8:])
	if head&onlyMask != onlyPlain {
		return 0, false
	}
	op = Opcode(head >> bthOpcodeAt)
	switch {
	case op == RCWriteOnly && len(b) == BTHLen+RETHLen:
		o.VA, o.RKey, o.Length = be.Uint64(b[BTHLen:]), be.Uint32(b[BTHLen+8:]), be.Uint32(b[BTHLen+12:])
	case op == RCSendOnly && len(b) == BTHLen:
	default:
		return 0, false
	}
	o.DestQP, o.PSN = uint32(head)&qpnMask, NewPSN(psn)
	o.Solicited = head&(bthSolicited<<bthFlagsAt) != 0
	o.AckReq = psn&bthAckReq != 0
	return op, true
}
