package verbs

// WROpcode is the operation of a send work request.
//
// Implements: enum ibv_wr_opcode.
type WROpcode uint32

// The send opcodes. FLUSH and ATOMIC_WRITE exist only in extended posting
// (see [SendGroup]).
const (
	WRRDMAWrite         WROpcode = 0
	WRRDMAWriteWithImm  WROpcode = 1
	WRSend              WROpcode = 2
	WRSendWithImm       WROpcode = 3
	WRRDMARead          WROpcode = 4
	WRAtomicCmpAndSwp   WROpcode = 5
	WRAtomicFetchAndAdd WROpcode = 6
	WRLocalInv          WROpcode = 7
	WRBindMW            WROpcode = 8
	WRSendWithInv       WROpcode = 9
	WRTSO               WROpcode = 10
	WRDriver1           WROpcode = 11
	WRFlush             WROpcode = 14
	WRAtomicWrite       WROpcode = 15
)

var wrOpcodeNames = map[uint32]string{
	0: "RDMA_WRITE", 1: "RDMA_WRITE_WITH_IMM", 2: "SEND", 3: "SEND_WITH_IMM",
	4: "RDMA_READ", 5: "ATOMIC_CMP_AND_SWP", 6: "ATOMIC_FETCH_AND_ADD",
	7: "LOCAL_INV", 8: "BIND_MW", 9: "SEND_WITH_INV", 10: "TSO", 11: "DRIVER1",
	14: "FLUSH", 15: "ATOMIC_WRITE",
}

// String is the name in <infiniband/verbs.h> without its IBV_WR_ prefix. Implements:
// ibv_wr_opcode_str.
func (o WROpcode) String() string { return enumName(wrOpcodeNames, "WROpcode", uint32(o)) }

// HasImm reports whether the request carries immediate data.
func (o WROpcode) HasImm() bool { return o == WRSendWithImm || o == WRRDMAWriteWithImm }

// IsAtomic reports whether the request is an 8-byte read-modify-write.
func (o WROpcode) IsAtomic() bool { return o == WRAtomicCmpAndSwp || o == WRAtomicFetchAndAdd }

// ExtendedOnly reports whether the request can be posted only through the extended interface
// (ibv_wr_*).
func (o WROpcode) ExtendedOnly() bool { return o == WRFlush || o == WRAtomicWrite }

// SendFlags modify one send work request.
//
// Implements: enum ibv_send_flags.
type SendFlags uint32

// The send flags.
const (
	// SendFence starts the request only after all earlier READs and atomics of
	// the queue pair have completed. It orders against nothing else.
	SendFence SendFlags = 1 << 0
	// SendSignaled asks for a completion on success. Failures and flushes
	// always complete.
	SendSignaled SendFlags = 1 << 1
	// SendSolicited raises the solicited event at the receiver.
	SendSolicited SendFlags = 1 << 2
	// SendInline copies the payload while posting: the buffer is free when the post returns, and
	// its lkey is ignored. SEND and WRITE only.
	SendInline SendFlags = 1 << 3
	// SendIPCsum offloads the IP checksum of raw packets.
	SendIPCsum SendFlags = 1 << 4
)

var sendFlagNames = []string{"FENCE", "SIGNALED", "SOLICITED", "INLINE", "IP_CSUM"}

// String joins the names of the flags set.
func (f SendFlags) String() string { return flagNames(sendFlagNames, uint32(f)) }

// WCOpcode is the operation that completed; valid only when the status is success.
//
// Implements: enum ibv_wc_opcode.
type WCOpcode uint32

// The completion opcodes. Receives have bit 7 set.
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCTSO             WCOpcode = 7
	WCFlush           WCOpcode = 8
	WCAtomicWrite     WCOpcode = 9
	WCRecv            WCOpcode = 1 << 7
	WCRecvRDMAWithImm WCOpcode = 1<<7 + 1
	WCTMAdd           WCOpcode = 1<<7 + 2
	WCTMDel           WCOpcode = 1<<7 + 3
	WCTMSync          WCOpcode = 1<<7 + 4
	WCTMRecv          WCOpcode = 1<<7 + 5
	WCTMNoTag         WCOpcode = 1<<7 + 6
	WCDriver1         WCOpcode = 1<<7 + 7
	WCDriver2         WCOpcode = 1<<7 + 8
	WCDriver3         WCOpcode = 1<<7 + 9
)

var wcOpcodeNames = map[uint32]string{
	0: "SEND", 1: "RDMA_WRITE", 2: "RDMA_READ", 3: "COMP_SWAP", 4: "FETCH_ADD",
	5: "BIND_MW", 6: "LOCAL_INV", 7: "TSO", 8: "FLUSH", 9: "ATOMIC_WRITE",
	128: "RECV", 129: "RECV_RDMA_WITH_IMM", 130: "TM_ADD", 131: "TM_DEL",
	132: "TM_SYNC", 133: "TM_RECV", 134: "TM_NO_TAG", 135: "DRIVER1",
	136: "DRIVER2", 137: "DRIVER3",
}

// String is the name in <infiniband/verbs.h> without its IBV_WC_ prefix.
func (o WCOpcode) String() string { return enumName(wcOpcodeNames, "WCOpcode", uint32(o)) }

// completions are the completion opcodes of requests; a request not listed here completes with
// SEND, which is 0.
var completions = [...]WCOpcode{
	WRRDMAWrite: WCRDMAWrite, WRRDMAWriteWithImm: WCRDMAWrite, WRRDMARead: WCRDMARead,
	WRAtomicCmpAndSwp: WCCompSwap, WRAtomicFetchAndAdd: WCFetchAdd,
	WRBindMW: WCBindMW, WRLocalInv: WCLocalInv, WRTSO: WCTSO, WRDriver1: WCDriver1,
	WRFlush: WCFlush, WRAtomicWrite: WCAtomicWrite,
}

// Completion returns the opcode of a successful completion of this request.
func (o WROpcode) Completion() WCOpcode {
	if int(o) < len(completions) {
		return completions[o]
	}
	return WCSend
}

// WCFlags qualify a successful completion. Test bits, never compare: devices
// set several at once.
//
// Implements: enum ibv_wc_flags.
type WCFlags uint32

// The completion flags.
const (
	WCWithGRH     WCFlags = 1 << 0
	WCWithImm     WCFlags = 1 << 1
	WCIPCsumOK    WCFlags = 1 << 2
	WCWithInv     WCFlags = 1 << 3
	WCTMSyncReq   WCFlags = 1 << 4
	WCTMMatch     WCFlags = 1 << 5
	WCTMDataValid WCFlags = 1 << 6
)

var wcFlagNames = []string{"GRH", "WITH_IMM", "IP_CSUM_OK", "WITH_INV", "TM_SYNC_REQ", "TM_MATCH", "TM_DATA_VALID"}

// String joins the names of the flags set.
func (f WCFlags) String() string { return flagNames(wcFlagNames, uint32(f)) }
