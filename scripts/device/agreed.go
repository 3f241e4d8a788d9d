package main

import (
	"context"
	"errors"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
)

// defaultEnd is the end of a connection whose attributes are not known: those of the runtime's default.
var defaultEnd = verbs.QPAttr{Timeout: 13, RetryCnt: 7}

// lostPeer measures how long the device repeats a request to a queue pair that is gone: the peer's is destroyed
// without notice. Soft-RoCE repeats for ever with 7 (rxe_comp.c, COMPST_ERROR_RETRY), so it is asked again with 6.
func (b *bench) lostPeer(ctx context.Context, end verbs.QPAttr) Item[RetryExc] {
	found := b.lost(ctx, end.Timeout, end.RetryCnt)
	const most = 7
	if found.Value == nil && end.RetryCnt == most {
		if less := b.lost(ctx, end.Timeout, end.RetryCnt-1); less.Value != nil {
			less.Value.Status += "; with 7 retries: " + found.Unknown
			return less
		}
	}
	return found
}

func (b *bench) lost(ctx context.Context, timeout, retry uint8) Item[RetryExc] {
	x, y, err := pairOf(b, timeout, retry)
	if err != nil {
		return unknown[RetryExc]("%v", err)
	}
	const (
		longest = 4           // times the shortest time, by the specification (IBTA 9.7.6.1.3)
		margin  = time.Second // for a busy machine
	)
	r := RetryExc{Timeout: codeOf(timeout, verbs.AckTimeout(timeout)), Retry: int(retry),
		Shortest: verbs.AckTimeout(timeout) * time.Duration(retry+1)}
	ctx, cancel := context.WithTimeout(ctx, longest*r.Shortest+margin)
	defer cancel()
	if err = y.qp.Close(); err == nil {
		x.prepare(y, 0, verbs.SendSignaled)
		began := time.Now()
		if err = x.post(); err == nil {
			var wc verbs.WC
			wc, err = x.until(ctx, nil, 1, true)
			r.Took, r.Status = time.Since(began), wc.Status.String()
		}
		if errors.Is(err, errCut) {
			err = errors.New("no completion within " + short(time.Since(began)))
		}
	}
	if cerr := errors.Join(x.close(), y.close()); err == nil {
		err = cerr
	}
	return item(r, err)
}
