package overhead

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// cm is a connection of package rdmacm between two libraries, which writes a word to the peer.
type cm struct {
	close  []func() error // the last one first
	id     *rdmacm.ID
	here   *rdmacm.MR
	there  *rdmacm.MR
	list   []rdmacm.SendWR
	listed int // how many writes are posted and then awaited; 1: by rdma_post_write, alone
	every  int // the distance of signaled writes; the last write of a list is signaled
}

// signaled is the distance of signaled writes in a list, that of package runtime.
const signaled = 32

// rdmacmSetUp bounds the time to connect.
const rdmacmSetUp = time.Minute

// newCM makes one synchronous caller of rdma_post_write and rdma_get_send_comp.
func newCM(at bed.Place) (suite.Load, error) { return openCM(at, 1, 1) }

// newCMList makes one submitter of lists of depth writes. One write in signaled asks for a completion.
func newCMList(at bed.Place) (suite.Load, error) { return openCM(at, depth, signaled) }

// newCMSignaled makes one submitter of lists of depth writes. Every write asks for a completion.
func newCMSignaled(at bed.Place) (suite.Load, error) { return openCM(at, depth, 1) }

func openCM(at bed.Place, listed, every int) (_ *cm, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), rdmacmSetUp)
	defer cancel()
	l := &cm{listed: listed, every: every}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	provider, err := at.Provider()
	if err != nil {
		return nil, err
	}
	attr := &rdmacm.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: uint32(listed), MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	var ends [2]*rdmacm.ID
	endpoint := func(i int, device string, info *rdmacm.AddrInfo) error {
		lib, err := rdmacm.Open(rdmacm.Config{Provider: provider, Device: device})
		if err != nil {
			return err
		}
		l.close = append(l.close, lib.Close)
		info.PortSpace, info.QPType = verbs.PSTCP, verbs.QPTRC
		ends[i], err = lib.CreateEndpoint(ctx, info, nil, attr)
		if err == nil {
			l.close = append(l.close, func() error { return ends[i].Destroy(context.Background()) })
		}
		return err
	}
	if err = endpoint(1, at.There(), &rdmacm.AddrInfo{Flags: rdmacm.AIPassive, Src: netip.MustParseAddrPort(bed.ThereAddr)}); err != nil {
		return nil, err
	}
	if err = ends[1].Listen(0); err != nil {
		return nil, err
	}
	if err = endpoint(0, at.Here(), &rdmacm.AddrInfo{Dst: ends[1].LocalAddr()}); err != nil {
		return nil, err
	}
	answer := make(chan error, 1)
	go func() { answer <- ends[0].Connect(ctx, nil) }()
	peer, err := ends[1].GetRequest(ctx)
	if err != nil {
		return nil, err
	}
	l.close = append(l.close, func() error { return peer.Destroy(context.Background()) })
	if err = errors.Join(peer.Accept(ctx, nil), <-answer); err != nil {
		return nil, err
	}
	l.id = ends[0]
	if l.here, err = l.word(l.id.RegMsgs); err != nil {
		return nil, err
	}
	if l.there, err = l.word(peer.RegWrite); err != nil {
		return nil, err
	}
	for i := range listed {
		var flags verbs.SendFlags
		if (i+1)%every == 0 {
			flags = verbs.SendSignaled
		}
		l.list = append(l.list, rdmacm.SendWR{
			Opcode: verbs.WRRDMAWrite, Flags: flags, SGL: []verbs.SGE{l.here.SGE(0, bed.Word)},
			Remote: l.there.Addr(), RKey: l.there.RKey(),
		})
	}
	return l, nil
}

// word registers memory for a word.
func (l *cm) word(reg func([]byte) (*rdmacm.MR, error)) (*rdmacm.MR, error) {
	m, err := verbs.AllocMemory(bed.Word)
	if err != nil {
		return nil, err
	}
	l.close = append(l.close, m.Close)
	mr, err := reg(m.Bytes()[:bed.Word])
	if err == nil {
		l.close = append(l.close, mr.Dereg)
	}
	return mr, err
}

// Round implements suite.Load.
func (l *cm) Round(n int, _ rounds.Values) error {
	ctx := context.Background()
	for ; n > 0; n -= l.listed {
		list := l.list[max(0, l.listed-n):] // the last one is signaled
		var err error
		if l.listed == 1 {
			err = l.id.PostWrite(0, l.here.Bytes(), l.here, verbs.SendSignaled, l.there.Addr(), l.there.RKey())
		} else {
			_, err = l.id.PostSendList(list)
		}
		if err != nil {
			return err
		}
		for range (len(list) + l.every - 1) / l.every {
			wc, err := l.id.GetSendComp(ctx)
			if err == nil {
				err = wc.Err()
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Close implements suite.Load.
func (l *cm) Close() (err error) {
	for i := len(l.close) - 1; i >= 0; i-- {
		err = errors.Join(err, l.close[i]())
	}
	return err
}
