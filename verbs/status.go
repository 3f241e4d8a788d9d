package verbs

// WCStatus is the outcome of an operation.
//
// Implements: enum ibv_wc_status.
type WCStatus uint32

// The 24 completion statuses.
const (
	WCSuccess          WCStatus = 0
	WCLocLenErr        WCStatus = 1  // a message longer than its buffers, or than the port carries
	WCLocQPOpErr       WCStatus = 2  // the request does not fit the queue pair
	WCLocEECOpErr      WCStatus = 3  // RD only
	WCLocProtErr       WCStatus = 4  // a local buffer outside its region, or a bad lkey
	WCWRFlushErr       WCStatus = 5  // the queue pair had failed already: a consequence, not a cause
	WCMWBindErr        WCStatus = 6  // a memory window could not be bound
	WCBadRespErr       WCStatus = 7  // the responder sent a response to no request
	WCLocAccessErr     WCStatus = 8  // a remote write with immediate hit a local protection error
	WCRemInvReqErr     WCStatus = 9  // the responder refused the request's form
	WCRemAccessErr     WCStatus = 10 // the responder refused the key, the range or the permission
	WCRemOpErr         WCStatus = 11 // the responder could not complete the request
	WCRetryExcErr      WCStatus = 12 // no answer within retry_cnt retries: the peer cannot be reached
	WCRNRRetryExcErr   WCStatus = 13 // the peer had no receive posted within rnr_retry retries
	WCLocRDDViolErr    WCStatus = 14 // RD only
	WCRemInvRDReqErr   WCStatus = 15 // RD only
	WCRemAbortErr      WCStatus = 16 // the peer aborted the operation
	WCInvEECNErr       WCStatus = 17 // RD only
	WCInvEECStateErr   WCStatus = 18 // RD only
	WCFatalErr         WCStatus = 19 // the device failed
	WCRespTimeoutErr   WCStatus = 20 // a response did not come in time
	WCGeneralErr       WCStatus = 21 // anything else
	WCTMErr            WCStatus = 22 // tag matching failed
	WCTMRndvIncomplete WCStatus = 23 // a rendezvous message was truncated
)

// NumWCStatus is the number of statuses in the specification.
const NumWCStatus = 24

var wcStatusNames = map[uint32]string{
	0: "SUCCESS", 1: "LOC_LEN_ERR", 2: "LOC_QP_OP_ERR", 3: "LOC_EEC_OP_ERR",
	4: "LOC_PROT_ERR", 5: "WR_FLUSH_ERR", 6: "MW_BIND_ERR", 7: "BAD_RESP_ERR",
	8: "LOC_ACCESS_ERR", 9: "REM_INV_REQ_ERR", 10: "REM_ACCESS_ERR",
	11: "REM_OP_ERR", 12: "RETRY_EXC_ERR", 13: "RNR_RETRY_EXC_ERR",
	14: "LOC_RDD_VIOL_ERR", 15: "REM_INV_RD_REQ_ERR", 16: "REM_ABORT_ERR",
	17: "INV_EECN_ERR", 18: "INV_EEC_STATE_ERR", 19: "FATAL_ERR",
	20: "RESP_TIMEOUT_ERR", 21: "GENERAL_ERR", 22: "TM_ERR",
	23: "TM_RNDV_INCOMPLETE",
}

// String is the name in <infiniband/verbs.h> without its IBV_WC_ prefix.
//
// Implements: ibv_wc_status_str.
func (s WCStatus) String() string { return enumName(wcStatusNames, "WCStatus", uint32(s)) }
