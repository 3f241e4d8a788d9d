package verbs

import "fmt"

// transition is a step of the queue pair state machine.
type transition struct{ from, to QPState }

type needs struct{ required, optional QPAttrMask }

// The masks per type (IBTA 11.2.5.2; the same table as the kernel's
// drivers/infiniband/core/verbs.c qp_state_table).
const (
	connInit = QPMPKeyIndex | QPMPort | QPMAccessFlags
	udInit   = QPMPKeyIndex | QPMPort | QPMQKey
	rcRTR    = QPMAV | QPMPathMTU | QPMDestQPN | QPMRQPSN | QPMMaxDestRdAtomic | QPMMinRNRTimer
	ucRTR    = QPMAV | QPMPathMTU | QPMDestQPN | QPMRQPSN
	rcRTS    = QPMTimeout | QPMRetryCnt | QPMRNRRetry | QPMSQPSN | QPMMaxQPRdAtomic
	xrRTS    = QPMTimeout | QPMSQPSN // the receiving end of XRC retries nothing
	ucLive   = QPMCurState | QPMAltPath | QPMAccessFlags | QPMPathMigState
	rcLive   = ucLive | QPMMinRNRTimer
	udLive   = QPMCurState | QPMQKey
	connOpt  = QPMAltPath | QPMAccessFlags | QPMPKeyIndex
	rcSQD    = QPMPort | QPMAV | QPMTimeout | QPMRetryCnt | QPMRNRRetry | QPMMaxQPRdAtomic |
		QPMMaxDestRdAtomic | QPMAltPath | QPMAccessFlags | QPMPKeyIndex | QPMMinRNRTimer | QPMPathMigState
	xsSQD = rcSQD &^ (QPMMaxDestRdAtomic | QPMMinRNRTimer)
	xrSQD = rcSQD &^ (QPMRetryCnt | QPMRNRRetry | QPMMaxQPRdAtomic)
	ucSQD = QPMAV | QPMAltPath | QPMAccessFlags | QPMPKeyIndex | QPMPathMigState
)

var rcSteps = map[transition]needs{
	{QPSReset, QPSInit}: {required: connInit},
	{QPSInit, QPSInit}:  {optional: connInit},
	{QPSInit, QPSRTR}:   {required: rcRTR, optional: connOpt},
	{QPSRTR, QPSRTS}:    {required: rcRTS, optional: rcLive},
	{QPSRTS, QPSRTS}:    {optional: rcLive},
	{QPSRTS, QPSSQD}:    {optional: QPMEnSQDAsyncNotify},
	{QPSSQD, QPSRTS}:    {optional: rcLive},
	{QPSSQD, QPSSQD}:    {optional: rcSQD},
}

var ucSteps = map[transition]needs{
	{QPSReset, QPSInit}: {required: connInit},
	{QPSInit, QPSInit}:  {optional: connInit},
	{QPSInit, QPSRTR}:   {required: ucRTR, optional: connOpt},
	{QPSRTR, QPSRTS}:    {required: QPMSQPSN, optional: ucLive},
	{QPSRTS, QPSRTS}:    {optional: ucLive},
	{QPSRTS, QPSSQD}:    {optional: QPMEnSQDAsyncNotify},
	{QPSSQD, QPSRTS}:    {optional: ucLive},
	{QPSSQD, QPSSQD}:    {optional: ucSQD},
	{QPSSQE, QPSRTS}:    {optional: QPMCurState | QPMAccessFlags},
}

var udSteps = map[transition]needs{
	{QPSReset, QPSInit}: {required: udInit},
	{QPSInit, QPSInit}:  {optional: udInit},
	{QPSInit, QPSRTR}:   {optional: QPMPKeyIndex | QPMQKey},
	{QPSRTR, QPSRTS}:    {required: QPMSQPSN, optional: udLive},
	{QPSRTS, QPSRTS}:    {optional: udLive},
	{QPSRTS, QPSSQD}:    {optional: QPMEnSQDAsyncNotify},
	{QPSSQD, QPSRTS}:    {optional: udLive},
	{QPSSQD, QPSSQD}:    {optional: QPMPKeyIndex | QPMQKey},
	{QPSSQE, QPSRTS}:    {optional: udLive},
}

// xsSteps are the steps of XRC_SEND, which responds to nothing, so that its way to RTR is that of
// UC; xrSteps those of XRC_RECV, which requests nothing.
var xsSteps = map[transition]needs{
	{QPSReset, QPSInit}: {required: connInit},
	{QPSInit, QPSInit}:  {optional: connInit},
	{QPSInit, QPSRTR}:   {required: ucRTR, optional: connOpt},
	{QPSRTR, QPSRTS}:    {required: rcRTS, optional: ucLive},
	{QPSRTS, QPSRTS}:    {optional: ucLive},
	{QPSRTS, QPSSQD}:    {optional: QPMEnSQDAsyncNotify},
	{QPSSQD, QPSRTS}:    {optional: ucLive},
	{QPSSQD, QPSSQD}:    {optional: xsSQD},
}

var xrSteps = map[transition]needs{
	{QPSReset, QPSInit}: {required: connInit},
	{QPSInit, QPSInit}:  {optional: connInit},
	{QPSInit, QPSRTR}:   {required: rcRTR, optional: connOpt},
	{QPSRTR, QPSRTS}:    {required: xrRTS, optional: rcLive},
	{QPSRTS, QPSRTS}:    {optional: rcLive},
	{QPSRTS, QPSSQD}:    {optional: QPMEnSQDAsyncNotify},
	{QPSSQD, QPSRTS}:    {optional: rcLive},
	{QPSSQD, QPSSQD}:    {optional: xrSQD},
}

// CheckTransition returns an error unless a queue pair of type t may go from one state to another
// with the attributes in mask (QPMState itself may be set). The error wraps
// [ErrInvalidTransition] and names the missing or excess attributes. CheckTransition does not
// block and may be called from any goroutine.
//
// Implements: the table of IBTA 11.2.5.2, as the kernel's ib_modify_qp_is_ok.
func CheckTransition(t QPType, from, to QPState, mask QPAttrMask) error {
	mask &^= QPMState
	fail := func(format string, a ...any) error {
		return fmt.Errorf("%w: %v queue pair %v to %v: %s", ErrInvalidTransition, t, from, to, fmt.Sprintf(format, a...))
	}
	if from > QPSErr || to > QPSErr {
		return fail("no such state")
	}
	var steps map[transition]needs
	switch t {
	case QPTRC:
		steps = rcSteps
	case QPTXRCSend:
		steps = xsSteps
	case QPTXRCRecv:
		steps = xrSteps
	case QPTUC:
		steps = ucSteps
	case QPTUD:
		steps = udSteps
	default:
		return fail("no transition table for this type")
	}
	n, ok := steps[transition{from, to}]
	if to == QPSReset || to == QPSErr && from != QPSReset {
		ok = true // with no attribute; ERR cannot be reached from RESET
	}
	switch {
	case !ok:
		return fail("no such step")
	case mask&n.required != n.required:
		return fail("attributes missing: %v", n.required&^mask)
	case mask&^(n.required|n.optional) != 0:
		return fail("attributes not allowed: %v", mask&^(n.required|n.optional))
	}
	return nil
}
