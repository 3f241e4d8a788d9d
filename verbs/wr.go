package verbs

import "encoding/binary"

// SGE is one scatter-gather element: a range of one local memory region.
//
// Implements: struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32 // bytes
	LKey   uint32
}

// SendWR is one work request for a send queue, laid out as struct ibv_send_wr on 64-bit. It lives
// in off-heap memory ([Memory]); Next and SGList are addresses there. It belongs to the caller; a
// provider reads it only while the batch that posts it runs.
//
// The union `wr` is spelled by words: RemoteAddr, W1, W2, W3. Use the setters.
//
//	             RemoteAddr      W1              W2      W3
//	RDMA         remote address  rkey            -       -
//	atomic       remote address  compare or add  swap    rkey
//	UD           AH handle       qpn | qkey<<32  -       -
//	FLUSH *      remote address  length          levels  rkey
//	ATOMIC_WRITE * remote addr.  the 8 bytes     -       rkey
//
// (*) have no form in struct ibv_send_wr; this layout belongs to the contract, and a provider
// posts it through its extended interface.
type SendWR struct {
	WRID       uint64
	Next       uint64 // address of the next SendWR of the list; 0 ends it
	SGList     uint64 // address of NumSGE consecutive SGEs
	NumSGE     uint32
	Opcode     WROpcode
	Flags      SendFlags
	ImmData    uint32 // immediate data in network byte order, or the rkey to invalidate
	RemoteAddr uint64
	W1         uint64
	W2         uint64
	W3         uint64
	RemoteSRQN uint32 // XRC
	_          uint32
	MW         uint64 // BIND_MW: handle of the window
	MWRKey     uint32
	_          uint32
	BindMR     uint64 // BIND_MW: handle of the region
	BindAddr   uint64
	BindLength uint64
	BindAccess AccessFlags
	_          uint32
}

// RecvWR is one work request for a receive queue or a shared receive queue,
// laid out as struct ibv_recv_wr. Ownership is that of [SendWR].
type RecvWR struct {
	WRID   uint64
	Next   uint64
	SGList uint64
	NumSGE uint32
	_      uint32
}

// Sizes of the fixed-layout records, in bytes; asserted at compile time.
const (
	SizeofSGE    = 16
	SizeofSendWR = 128
	SizeofRecvWR = 32
	SizeofWC     = 48
)

// NetworkOrder turns a host-order word into the word whose bytes in memory are
// big-endian, and back.
func NetworkOrder(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return binary.NativeEndian.Uint32(b[:])
}

// SetImm stores immediate data given in host order.
func (w *SendWR) SetImm(v uint32) { w.ImmData = NetworkOrder(v) }

// Imm is the immediate data in host order.
func (w *SendWR) Imm() uint32 { return NetworkOrder(w.ImmData) }

// SetRDMA stores the target of an RDMA WRITE or READ.
func (w *SendWR) SetRDMA(remote uint64, rkey uint32) {
	w.RemoteAddr = remote
	w.W1 = packLow(uint64(rkey))
}

// RDMARKey is the remote key of an RDMA WRITE or READ.
func (w *SendWR) RDMARKey() uint32 { return lowWord(w.W1) }

// SetCompareSwap stores the target and operands of an ATOMIC_CMP_AND_SWP, in
// host order. remote must be a multiple of 8.
func (w *SendWR) SetCompareSwap(remote uint64, rkey uint32, compare, swap uint64) {
	w.RemoteAddr, w.W1, w.W2, w.W3 = remote, compare, swap, packLow(uint64(rkey))
}

// SetFetchAdd stores the target and operand of an ATOMIC_FETCH_AND_ADD, in
// host order. remote must be a multiple of 8.
func (w *SendWR) SetFetchAdd(remote uint64, rkey uint32, add uint64) {
	w.RemoteAddr, w.W1, w.W2, w.W3 = remote, add, 0, packLow(uint64(rkey))
}

// AtomicRKey is the remote key of an atomic, a FLUSH or an ATOMIC_WRITE.
func (w *SendWR) AtomicRKey() uint32 { return lowWord(w.W3) }

// SetAtomicWrite stores the target and the 8 bytes (in the byte order of this host) of an
// ATOMIC_WRITE.
func (w *SendWR) SetAtomicWrite(remote uint64, rkey uint32, value uint64) {
	w.RemoteAddr, w.W1, w.W2, w.W3 = remote, value, 0, packLow(uint64(rkey))
}

// SetFlush stores the range, the placement and the selectivity of a FLUSH.
func (w *SendWR) SetFlush(remote uint64, rkey uint32, length uint64, p FlushPlacement, s FlushSelectivity) {
	w.RemoteAddr, w.W1, w.W2, w.W3 = remote, length, uint64(p)|uint64(s)<<8, packLow(uint64(rkey))
}

// SetInvalidate stores the key that a LOCAL_INV invalidates here, or a SEND_WITH_INV at the peer.
// In host order, unlike immediate data.
func (w *SendWR) SetInvalidate(rkey uint32) { w.ImmData = rkey }

// Invalidate is the key to invalidate.
func (w *SendWR) Invalidate() uint32 { return w.ImmData }

// SetBind stores the binding that a BIND_MW gives window mw: length bytes at addr of region mr,
// named by peers with rkey, which must differ from the window's current key in its low 8 bits
// only (see [IncRKey]). length 0 with mr 0 unbinds a type 1 window. mw and mr are handles.
func (w *SendWR) SetBind(mw uint64, rkey uint32, mr, addr, length uint64, access AccessFlags) {
	w.MW, w.MWRKey = mw, rkey
	w.BindMR, w.BindAddr, w.BindLength, w.BindAccess = mr, addr, length, access
}

// IncRKey returns the next key of a memory window, with its low 8 bits, the consumer's part,
// incremented.
//
// Implements: ibv_inc_rkey.
func IncRKey(rkey uint32) uint32 { return rkey&^0xff | (rkey+1)&0xff }

// SetUD stores the destination of a datagram: the handle of an address
// handle, the queue pair number and its key.
func (w *SendWR) SetUD(ah uint64, qpn, qkey uint32) {
	w.RemoteAddr = ah
	w.W1 = packPair(qpn, qkey)
}

// UD is the destination of a datagram.
func (w *SendWR) UD() (ah uint64, qpn, qkey uint32) {
	qpn, qkey = unpackPair(w.W1)
	return w.RemoteAddr, qpn, qkey
}

// packLow stores a 32-bit member of the C union in the first four bytes of its word, in either
// byte order.
func packLow(v uint64) uint64 { return packPair(uint32(v), 0) }

func lowWord(w uint64) uint32 { lo, _ := unpackPair(w); return lo }

func packPair(first, second uint32) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint32(b[0:], first)
	binary.NativeEndian.PutUint32(b[4:], second)
	return binary.NativeEndian.Uint64(b[:])
}

func unpackPair(w uint64) (first, second uint32) {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], w)
	return binary.NativeEndian.Uint32(b[0:]), binary.NativeEndian.Uint32(b[4:])
}
