package verbs

// WC is one completion, laid out as struct ibv_wc. A provider writes it into the caller's memory
// while a batch polls.
//
// When Status is not [WCSuccess] only WRID, Status, QPNum and VendorErr are meaningful: the kind
// of the operation must be known from WRID.
type WC struct {
	WRID         uint64
	Status       WCStatus
	Opcode       WCOpcode
	VendorErr    uint32
	ByteLen      uint32 // bytes received, read, or 8 for an atomic
	ImmData      uint32 // network byte order; with WCWithInv the invalidated key
	QPNum        uint32
	SrcQP        uint32 // UD
	Flags        WCFlags
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	_            uint16
}

// Imm is the immediate data in host order; valid with [WCWithImm].
func (w *WC) Imm() uint32 { return NetworkOrder(w.ImmData) }

// Err returns nil for a success and a *[WCError] otherwise. It allocates for a failure.
func (w *WC) Err() error {
	if w.Status == WCSuccess {
		return nil
	}
	return &WCError{Status: w.Status, QPNum: w.QPNum, VendorErr: w.VendorErr, WRID: w.WRID}
}
