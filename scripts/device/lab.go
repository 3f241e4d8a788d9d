package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// side is a queue pair with all that it needs, without the runtime: the measurements of single steps.
type side struct {
	b     *bench
	ctx   verbs.Context
	pd    verbs.PD
	mem   *verbs.Memory
	mr    verbs.MR
	ch    verbs.CompChannel
	cq    verbs.CQ
	qp    verbs.QP
	path  bootstrap.Path
	own   bootstrap.Dest
	batch verbs.IOBatch
	sends []verbs.SendWR
	recvs []verbs.RecvWR
	sges  []verbs.SGE
	wcs   []verbs.WC
	sendAt, recvAt,
	sgeAt uint64
	closers
}

// The places in a side's memory.
const (
	labDepth  = 64 // requests of each queue
	labData   = 4096
	sendsFrom = labData
	recvsFrom = sendsFrom + labDepth*verbs.SizeofSendWR
	sgesFrom  = recvsFrom + labDepth*verbs.SizeofRecvWR
	wcsFrom   = sgesFrom + labDepth*verbs.SizeofSGE
	labSize   = wcsFrom + labDepth*verbs.SizeofWC
)

// newSide makes a side, whose queue pair is in INIT.
func newSide(b *bench, t target, timeout, retry uint8) (_ *side, err error) {
	s := &side{b: b, path: bootstrap.Path{Timeout: timeout, RetryCount: retry}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	var shut func() error
	if s.ctx, shut, err = b.open(t); err != nil {
		return nil, err
	}
	s.add(shut)
	if s.path, s.own, err = s.path.On(s.ctx); err != nil {
		return nil, err
	}
	if s.pd, err = s.ctx.AllocPD(); err != nil {
		return nil, err
	}
	s.add(s.pd.Close)
	if s.mem, err = verbs.AllocMemory(labSize); err != nil {
		return nil, err
	}
	s.add(s.mem.Close)
	if s.mr, err = s.pd.RegMR(s.mem.Addr(), labSize, s.mem.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return nil, err
	}
	s.add(s.mr.Close)
	if s.ch, err = s.ctx.CreateCompChannel(); err != nil {
		return nil, err
	}
	s.add(s.ch.Close)
	if s.cq, err = s.ctx.CreateCQ(2*labDepth, s.ch, 0, 0); err != nil {
		return nil, err
	}
	s.add(s.cq.Close)
	if err := s.newQP(); err != nil {
		return nil, err
	}
	s.sends, s.sendAt = verbs.Records[verbs.SendWR](s.mem, sendsFrom, labDepth)
	s.recvs, s.recvAt = verbs.Records[verbs.RecvWR](s.mem, recvsFrom, labDepth)
	s.sges, s.sgeAt = verbs.Records[verbs.SGE](s.mem, sgesFrom, labDepth)
	s.wcs, _ = verbs.Records[verbs.WC](s.mem, wcsFrom, labDepth)
	return s, nil
}

// newQP makes the queue pair, in place of a closed one.
func (s *side) newQP() (err error) {
	if s.qp, err = s.pd.CreateQP(&verbs.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: labDepth, MaxRecvWR: labDepth, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return err
	}
	qp := s.qp
	s.add(qp.Close) // idempotent
	s.own.QPN, s.own.PSN = qp.Num(), bootstrap.RandomPSN()
	return s.path.Init(qp)
}

// pairOf makes two sides that are connected.
func pairOf(b *bench, timeout, retry uint8) (x, y *side, err error) {
	if x, err = newSide(b, b.ends[0], timeout, retry); err != nil {
		return nil, nil, err
	}
	if y, err = newSide(b, b.ends[1], timeout, retry); err != nil {
		return nil, nil, errors.Join(err, x.close())
	}
	if err = errors.Join(x.path.Connect(x.qp, x.own.PSN, y.own), y.path.Connect(y.qp, y.own.PSN, x.own)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connecting without a connection manager: %w", err), x.close(), y.close())
	}
	return x, y, nil
}

// prepare writes the next send: a WRITE of n bytes to y.
func (s *side) prepare(y *side, n uint32, flags verbs.SendFlags) {
	s.sges[0] = verbs.SGE{Addr: s.mem.Addr(), Length: n, LKey: s.mr.LKey()}
	s.sends[0] = verbs.SendWR{SGList: s.sgeAt, NumSGE: 1, Opcode: verbs.WRRDMAWrite, Flags: flags}
	s.sends[0].SetRDMA(y.mem.Addr(), y.mr.RKey())
	s.batch.Sends = append(s.batch.Sends[:0], verbs.SendGroup{QP: s.qp, Head: s.sendAt, Count: 1})
}

// post posts what prepare has written. It polls nothing.
func (s *side) post() error {
	s.batch.Polls, s.batch.Arms = s.batch.Polls[:0], s.batch.Arms[:0]
	if err := s.ctx.Execute(&s.batch); err != nil {
		return err
	}
	if g := &s.batch.Sends[0]; g.Accepted != 1 {
		return fmt.Errorf("ibv_post_send: %w", g.Errno)
	}
	return nil
}

// receive posts all receives of the queue.
func (s *side) receive() error {
	for i := range s.recvs {
		s.recvs[i] = verbs.RecvWR{WRID: uint64(i)}
		if i > 0 {
			s.recvs[i-1].Next = s.recvAt + uint64(i)*verbs.SizeofRecvWR
		}
	}
	n, err := verbs.PostRecv(s.qp, s.recvAt, labDepth)
	if err == nil && n != labDepth {
		err = fmt.Errorf("ibv_post_recv took %d of %d", n, labDepth)
	}
	return err
}

// poll takes completions.
func (s *side) poll() (n int, err error) {
	s.batch.Sends, s.batch.Arms = s.batch.Sends[:0], s.batch.Arms[:0]
	s.batch.Polls = append(s.batch.Polls[:0], verbs.PollGroup{CQ: s.cq, WC: s.wcs})
	if err := s.ctx.Execute(&s.batch); err != nil {
		return 0, err
	}
	if g := &s.batch.Polls[0]; g.Errno != 0 {
		return 0, fmt.Errorf("ibv_poll_cq: %w", g.Errno)
	}
	return s.batch.Polls[0].N, nil
}

// pollPause is how long a wait for seconds sleeps between polls.
const pollPause = time.Millisecond

// until polls until n completions have come. It sleeps between the polls if pause is set, and otherwise spins.
// Both sides poll: the software RNIC's work is done by who polls.
func (s *side) until(ctx context.Context, y *side, n int, pause bool) (last verbs.WC, err error) {
	for n > 0 {
		got, err := s.poll()
		if err != nil {
			return last, err
		}
		if got > 0 {
			n, last = n-got, s.wcs[got-1]
			continue
		}
		if y != nil {
			if _, err := y.poll(); err != nil {
				return last, err
			}
		}
		if err := ctx.Err(); err != nil {
			return last, errCut
		}
		if pause {
			time.Sleep(pollPause)
		}
	}
	return last, nil
}
