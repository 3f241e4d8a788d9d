package bootstrap

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// The attributes of each step (verbs.CheckTransition).
const (
	initConn = verbs.QPMState | verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMAccessFlags
	initUD   = verbs.QPMState | verbs.QPMPKeyIndex | verbs.QPMPort | verbs.QPMQKey
	rtrUC    = verbs.QPMState | verbs.QPMAV | verbs.QPMPathMTU | verbs.QPMDestQPN | verbs.QPMRQPSN
	rtrRC    = rtrUC | verbs.QPMMaxDestRdAtomic | verbs.QPMMinRNRTimer
	rtsPlain = verbs.QPMState | verbs.QPMSQPSN
	rtsRC    = rtsPlain | verbs.QPMTimeout | verbs.QPMRetryCnt | verbs.QPMRNRRetry | verbs.QPMMaxQPRdAtomic
)

// RandomPSN returns a first PSN for a queue pair: 24 random bits, so that late packets of an
// earlier queue pair with the same number are not taken for this one's.
func RandomPSN() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return binary.BigEndian.Uint32(b[:]) & bits24
}

// Init moves a queue pair from RESET to INIT, where receives can be posted. p comes from On. It
// is a call into the driver and does not block beyond that; like all calls on a queue pair it is
// made by the owner of the queue pair.
//
// Implements: ibv_modify_qp.
func (p Path) Init(qp verbs.QP) error {
	a := verbs.QPAttr{State: verbs.QPSInit, PKeyIndex: p.PKeyIndex, Port: p.Port, AccessFlags: p.Access, QKey: p.QKey}
	switch qp.Type() {
	case verbs.QPTRC:
		return qp.Modify(&a, initConn)
	case verbs.QPTUC: // no READs, no atomics
		a.AccessFlags &= verbs.AccessLocalWrite | verbs.AccessRemoteWrite
		return qp.Modify(&a, initConn)
	case verbs.QPTUD:
		return qp.Modify(&a, initUD)
	}
	return noType(qp)
}

// Connect moves a queue pair from INIT to RTS: RC and UC connected to the peer's, UD unconnected
// (it ignores peer; see AH). p comes from On, psn is the PSN that was sent to the peer. An
// impossible peer is ErrDest, and the queue pair stays in INIT; an absent one shows only when
// something is sent. When the second step fails the queue pair is in RTR and must be closed.
// Otherwise as Init.
//
// Implements: ibv_modify_qp, as pp_connect_ctx of the ibv_*_pingpong programs.
func (p Path) Connect(qp verbs.QP, psn uint32, peer Dest) error {
	if qp.Type() == verbs.QPTUD {
		if err := qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR}, verbs.QPMState); err != nil {
			return err
		}
		return qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, SQPSN: psn}, rtsPlain)
	}
	if err := peer.Check(); err != nil {
		return err
	}
	rtr := verbs.QPAttr{State: verbs.QPSRTR, PathMTU: p.MTU, DestQPN: peer.QPN, RQPSN: peer.PSN, AH: p.ah(peer),
		MaxDestRdAtomic: p.DestRdAtomic, MinRNRTimer: p.MinRNRTimer}
	rts := verbs.QPAttr{State: verbs.QPSRTS, SQPSN: psn, Timeout: p.Timeout, RetryCnt: p.RetryCount, RNRRetry: verbs.RNRRetryInfinite,
		MaxRdAtomic: p.RdAtomic}
	if p.NoRNRRetry {
		rts.RNRRetry = 0
	}
	steps := [2]verbs.QPAttrMask{rtrRC, rtsRC}
	switch qp.Type() {
	case verbs.QPTRC:
	case verbs.QPTUC:
		steps = [2]verbs.QPAttrMask{rtrUC, rtsPlain}
	default:
		return noType(qp)
	}
	if err := qp.Modify(&rtr, steps[0]); err != nil {
		return err
	}
	return qp.Modify(&rts, steps[1])
}

// AH returns the address of a peer for datagrams: for verbs.PD.CreateAH, beside the peer's QPN
// and the QKey. p comes from On. An impossible peer is ErrDest. It does not block.
//
// Implements: the ah_attr of ibv_ud_pingpong.
func (p Path) AH(peer Dest) (verbs.AHAttr, error) { return p.ah(peer), peer.Check() }

func noType(qp verbs.QP) error {
	return fmt.Errorf("%w: %v is of type %v; RC, UC and UD can be joined without a connection manager", verbs.ErrNotSupported, qp, qp.Type())
}
