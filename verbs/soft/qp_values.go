package soft

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/wire"
)

// The greatest values of attributes with few bits.
const (
	max24      = 1<<24 - 1
	maxRetry   = 7
	maxTimer   = 31
	knownQPAcc = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
		verbs.AccessMWBind | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent
)

// checkValues refuses values that the port or the packet format cannot hold.
func (q *queuePair) checkValues(a *verbs.QPAttr, mask verbs.QPAttrMask) error {
	bad := func(what string, v, top any) error {
		return fmt.Errorf("%w: %s is %v, at most %v", verbs.ErrInvalid, what, v, top)
	}
	l := &q.dev.cfg.Limits
	for _, c := range []struct {
		bit    verbs.QPAttrMask
		name   string
		v, top uint32
	}{
		{verbs.QPMPKeyIndex, "PKeyIndex", uint32(a.PKeyIndex), 0},
		{verbs.QPMTimeout, "Timeout", uint32(a.Timeout), maxTimer},
		{verbs.QPMRetryCnt, "RetryCnt", uint32(a.RetryCnt), maxRetry},
		{verbs.QPMRNRRetry, "RNRRetry", uint32(a.RNRRetry), maxRetry},
		{verbs.QPMMinRNRTimer, "MinRNRTimer", uint32(a.MinRNRTimer), maxTimer},
		{verbs.QPMRQPSN, "RQPSN", a.RQPSN, max24},
		{verbs.QPMSQPSN, "SQPSN", a.SQPSN, max24},
		{verbs.QPMDestQPN, "DestQPN", a.DestQPN, max24},
		{verbs.QPMMaxQPRdAtomic, "MaxRdAtomic", uint32(a.MaxRdAtomic), uint32(l.MaxRdAtomic)},
		{verbs.QPMMaxDestRdAtomic, "MaxDestRdAtomic", uint32(a.MaxDestRdAtomic), uint32(l.MaxRdAtomic)},
	} {
		if mask&c.bit != 0 && c.v > c.top {
			return bad(c.name, c.v, c.top)
		}
	}
	if mask&verbs.QPMPort != 0 && a.Port != portNumber {
		return fmt.Errorf("%w: port %d, there is only port %d", verbs.ErrInvalid, a.Port, portNumber)
	}
	if mask&verbs.QPMAV != 0 && a.AH.Port != portNumber {
		return fmt.Errorf("%w: a path through port %d, there is only port %d", verbs.ErrInvalid, a.AH.Port, portNumber)
	}
	if mask&verbs.QPMAV != 0 && q.path == (wire.Path{}) { // otherwise the connection manager has found the path
		if err := q.dev.checkSource(&a.AH); err != nil {
			return err
		}
	}
	if mask&verbs.QPMPathMTU != 0 && (a.PathMTU.Bytes() == 0 || a.PathMTU.Bytes() > q.dev.cfg.MTU.Bytes()) {
		return bad("path MTU", a.PathMTU, q.dev.cfg.MTU)
	}
	if mask&verbs.QPMAccessFlags != 0 && a.AccessFlags&^knownQPAcc != 0 {
		return fmt.Errorf("%w: access %v of a queue pair", verbs.ErrInvalid, a.AccessFlags&^knownQPAcc)
	}
	if mask&verbs.QPMAltPath != 0 {
		return fmt.Errorf("%w: alternate paths", verbs.ErrNotSupported)
	}
	return nil
}
