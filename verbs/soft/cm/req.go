package cm

// REQ requests a connection (IBTA 12.6.5; kernel drivers/infiniband/core/cm_msgs.h struct
// cm_req_msg). "Local" is the sender.
type REQ struct {
	TID                uint64
	Options            uint32 // the vendor's: the attribute modifier
	LocalID            uint32
	Vendor             uint32 // 24 bits; 0: no options (IBTA 12.6.5; ibta_vol1_c12.h CM_REQ_VENDOR_ID)
	ServiceID          uint64
	CAGUID             uint64
	QKey               uint32
	QPN                uint32 // 24 bits
	ResponderResources uint8  // READs and atomics the sender serves at a time
	LocalEECN          uint32 // 24 bits; reliable datagram only
	InitiatorDepth     uint8  // READs and atomics the sender issues at a time
	RemoteEECN         uint32 // 24 bits
	RemoteTimeout      uint8  // 5 bits: the time in which the receiver's CM answers this
	Transport          uint8  // 2 bits: 0 RC, 1 UC, 2 RD, 3 see ExtTransport
	FlowControl        bool
	PSN                uint32 // 24 bits: the first PSN that the receiver of this message sends (IBTA 12.7.31)
	LocalTimeout       uint8  // 5 bits: the time in which the sender's CM answers a REP
	RetryCount         uint8  // 3 bits
	PKey               uint16
	PathMTU            uint8 // 4 bits, see MTUCode
	RDCExists          bool
	RNRRetry           uint8 // 3 bits: the receiver's RNR retries
	MaxCMRetries       uint8 // 4 bits
	SRQ                bool
	ExtTransport       uint8 // 3 bits
	Primary            Path
	Alternate          Path
	Private            [PrivateREQ]byte
}

// Transport services of a REQ.
const (
	TransportRC  = 0
	TransportUC  = 1
	TransportExt = 3 // the one that ExtTransport names
	ExtXRC       = 1 // of ExtTransport
)

// XRC reports whether the request is for queue pairs of types XRC_SEND and XRC_RECV.
//
// Implements: cm_req_get_qp_type (kernel cm_msgs.h).
func (q *REQ) XRC() bool { return q.Transport == TransportExt && q.ExtTransport == ExtXRC }

// Offsets in a REQ.
const (
	reqVendor  = offBody + 4 // after 8 reserved bits
	reqService = offBody + 8
	reqGUID    = offBody + 16
	reqQKey    = offBody + 28
	reqQPN     = offBody + 32
	reqLEECN   = offBody + 36
	reqREECN   = offBody + 40
	reqPSN     = offBody + 44
	reqPKey    = offBody + 48
	reqMTU     = offBody + 50
	reqRetries = offBody + 51
	reqPrimary = offBody + 52
	reqAlt     = reqPrimary + sizePath
	reqPrivate = reqAlt + sizePath
)

// The private data ends with the datagram.
var _ [MADSize - reqPrivate - PrivateREQ]struct{} = [0]struct{}{}

// Attr returns AttrREQ.
func (*REQ) Attr() Attr { return AttrREQ }

// Put encodes the REQ; see [Message].
func (q *REQ) Put(m *MAD) error {
	w := widths{msg: AttrREQ}
	w.fit("vendor ID", uint64(q.Vendor), 24)
	w.fit("local QPN", uint64(q.QPN), 24)
	w.fit("local EECN", uint64(q.LocalEECN), 24)
	w.fit("remote EECN", uint64(q.RemoteEECN), 24)
	w.fit("remote CM response timeout", uint64(q.RemoteTimeout), 5)
	w.fit("transport service", uint64(q.Transport), 2)
	w.fit("starting PSN", uint64(q.PSN), 24)
	w.fit("local CM response timeout", uint64(q.LocalTimeout), 5)
	w.fit("retry count", uint64(q.RetryCount), 3)
	w.fit("path MTU", uint64(q.PathMTU), 4)
	w.fit("RNR retry count", uint64(q.RNRRetry), 3)
	w.fit("max CM retries", uint64(q.MaxCMRetries), 4)
	w.fit("extended transport", uint64(q.ExtTransport), 3)
	begin(m, AttrREQ, q.TID)
	put32(m, offModifier, q.Options)
	put32(m, offBody, q.LocalID)
	put32(m, reqVendor, q.Vendor)
	put64(m, reqService, q.ServiceID)
	put64(m, reqGUID, q.CAGUID)
	put32(m, reqQKey, q.QKey)
	put24(m, reqQPN, q.QPN, q.ResponderResources)
	put24(m, reqLEECN, q.LocalEECN, q.InitiatorDepth)
	put24(m, reqREECN, q.RemoteEECN, q.RemoteTimeout<<3|q.Transport<<1|bit(q.FlowControl, 0))
	put24(m, reqPSN, q.PSN, q.LocalTimeout<<3|q.RetryCount)
	put16(m, reqPKey, q.PKey)
	m[reqMTU] = q.PathMTU<<4 | bit(q.RDCExists, 3) | q.RNRRetry
	m[reqRetries] = q.MaxCMRetries<<4 | bit(q.SRQ, 3) | q.ExtTransport
	q.Primary.put(m, reqPrimary, &w)
	q.Alternate.put(m, reqAlt, &w)
	copy(m[reqPrivate:], q.Private[:])
	return w.err
}

func (q *REQ) parse(m *MAD) error {
	q.TID = get64(m, offTID)
	q.Options = get32(m, offModifier)
	q.LocalID = get32(m, offBody)
	q.Vendor = get32(m, reqVendor) & max24
	q.ServiceID = get64(m, reqService)
	q.CAGUID = get64(m, reqGUID)
	q.QKey = get32(m, reqQKey)
	q.QPN, q.ResponderResources = get24(m, reqQPN), m[reqQPN+3]
	q.LocalEECN, q.InitiatorDepth = get24(m, reqLEECN), m[reqLEECN+3]
	low := m[reqREECN+3]
	q.RemoteEECN, q.RemoteTimeout = get24(m, reqREECN), low>>3
	q.Transport, q.FlowControl = low>>1&3, low&1 != 0
	low = m[reqPSN+3]
	q.PSN, q.LocalTimeout, q.RetryCount = get24(m, reqPSN), low>>3, low&7
	q.PKey = get16(m, reqPKey)
	q.PathMTU, q.RDCExists, q.RNRRetry = m[reqMTU]>>4, m[reqMTU]&8 != 0, m[reqMTU]&7
	q.MaxCMRetries, q.SRQ, q.ExtTransport = m[reqRetries]>>4, m[reqRetries]&8 != 0, m[reqRetries]&7
	q.Primary.get(m, reqPrimary)
	q.Alternate.get(m, reqAlt)
	copy(q.Private[:], m[reqPrivate:])
	if err := checkID(AttrREQ, "local communication ID", q.LocalID); err != nil {
		return err
	}
	return checkQPN(AttrREQ, q.QPN)
}
