package verbs

import "unsafe"

// Compile-time assertions: an array index out of range is a compile error, so
// each line holds only while size and offset are those of the C ABI (64-bit,
// rdma-core v44 to v64, libibverbs/verbs.h).
var (
	_ = [1]struct{}{}[unsafe.Sizeof(SGE{})-SizeofSGE]
	_ = [1]struct{}{}[unsafe.Sizeof(SendWR{})-SizeofSendWR]
	_ = [1]struct{}{}[unsafe.Sizeof(RecvWR{})-SizeofRecvWR]
	_ = [1]struct{}{}[unsafe.Sizeof(WC{})-SizeofWC]

	_ = [1]struct{}{}[unsafe.Offsetof(SGE{}.Length)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(SGE{}.LKey)-12]

	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Next)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.SGList)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.NumSGE)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Opcode)-28]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Flags)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.ImmData)-36]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.RemoteAddr)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.W1)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.W2)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.W3)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.RemoteSRQN)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.MW)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.MWRKey)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindMR)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindAddr)-104]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindLength)-112]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.BindAccess)-120]

	_ = [1]struct{}{}[unsafe.Offsetof(RecvWR{}.Next)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(RecvWR{}.SGList)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(RecvWR{}.NumSGE)-24]

	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.Status)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.Opcode)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.VendorErr)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.ByteLen)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.ImmData)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.QPNum)-28]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.SrcQP)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.Flags)-36]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.PKeyIndex)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.SLID)-42]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.SL)-44]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.DLIDPathBits)-45]
)
