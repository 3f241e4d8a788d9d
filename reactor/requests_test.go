package reactor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// smallPort is a device whose port carries smallMessage bytes in a message.
type smallPort struct{ verbs.Context }

const smallMessage = 4096

func (s smallPort) QueryPort(p uint8) (verbs.PortAttr, error) {
	a, err := s.Context.QueryPort(p)
	a.MaxMsgSize = smallMessage
	return a, err
}

// Rule: a request that the device would refuse, or that is not the caller's to
// make, is refused before it takes room; none cuts the list of the others.
func TestRequestsOfOthersAreRefused(t *testing.T) {
	a, b := pairOf(t, reactor.Config{}, reactor.QueueConfig{SendDepth: 4, Inline: 32}, func(c verbs.Context) verbs.Context { return smallPort{c} })
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	_, full := a.bytes(0, smallMessage)
	_, word := a.bytes(0, 8)
	write := reactor.Send{Opcode: verbs.WRRDMAWrite, Remote: addr, RKey: key}
	with := func(flags verbs.SendFlags) reactor.Send { s := write; s.Flags = flags; return s }
	of := func(op verbs.WROpcode) reactor.Send { s := write; s.Opcode = op; return s }
	sges := func(s ...verbs.SGE) []verbs.SGE { return s }
	good := func() reactor.Future {
		f, err := a.q.Submit(context.Background(), &write, &reactor.Payload{SGEs: sges(word)}, reactor.Try)
		check(t, err)
		return f
	}
	var fs []reactor.Future
	a.do(t, func() {
		fs = append(fs, good())
		for name, c := range map[string]struct {
			s reactor.Send
			p reactor.Payload
		}{
			"SIGNALED":                       {with(verbs.SendSignaled), reactor.Payload{SGEs: sges(word)}},
			"INLINE longer than the queue":   {with(verbs.SendInline), reactor.Payload{SGEs: sges(word), Header: make([]byte, 25)}},
			"a READ with INLINE":             {reactor.Send{Opcode: verbs.WRRDMARead, Flags: verbs.SendInline, Remote: addr, RKey: key}, reactor.Payload{SGEs: sges(word)}},
			"an atomic with INLINE":          {reactor.Send{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendInline, Remote: addr, RKey: key}, reactor.Payload{}},
			"a flag nobody knows":            {with(1 << 30), reactor.Payload{SGEs: sges(word)}},
			"TSO":                            {of(verbs.WRTSO), reactor.Payload{SGEs: sges(word)}},
			"an opcode nobody knows":         {of(250), reactor.Payload{}},
			"one byte too many":              {write, reactor.Payload{SGEs: sges(full, verbs.SGE{Addr: word.Addr, Length: 1, LKey: word.LKey})}},
			"one byte of header too many":    {write, reactor.Payload{SGEs: sges(full), Header: make([]byte, 1)}},
			"a header longer than the queue": {write, reactor.Payload{SGEs: sges(word), Header: make([]byte, 33)}},
			"inline longer than the queue":   {write, reactor.Payload{Inline: make([]byte, 32), Header: make([]byte, 1)}},
			"a READ with a header":           {of(verbs.WRRDMARead), reactor.Payload{SGEs: sges(word), Header: make([]byte, 1)}},
			"an atomic with a header":        {of(verbs.WRAtomicFetchAndAdd), reactor.Payload{Header: make([]byte, 8)}},
			"an atomic with elements":        {of(verbs.WRAtomicCmpAndSwp), reactor.Payload{SGEs: sges(word)}},
			"an atomic with inline data":     {of(verbs.WRAtomicFetchAndAdd), reactor.Payload{Inline: make([]byte, 8)}},
		} {
			for _, post := range []func() error{
				func() error { _, err := a.q.Submit(context.Background(), &c.s, &c.p, reactor.Try); return err },
				func() error { s := c.s; s.Sink = make(tally, 1); return a.q.PostControl(&s, c.p) },
			} {
				if err := post(); !errors.Is(err, reactor.ErrRequest) {
					t.Errorf("%s: %v, want ErrRequest", name, err)
				}
			}
		}
		for range 3 {
			fs = append(fs, good()) // there is room for all four: nothing was taken
		}
	})
	for i, f := range fs {
		if _, err := f.Await(bounded(t)); err != nil {
			t.Errorf("write %d of %d: %v", i, len(fs), err)
		}
	}
	if st := a.r.Stats(); st.PostFailures != 0 || st.WorkRequests != uint64(len(fs)) {
		t.Errorf("%d requests posted, %d lists cut; want %d and none", st.WorkRequests, st.PostFailures, len(fs))
	}
	f, err := a.q.Submit(context.Background(), &write, &reactor.Payload{SGEs: sges(full)}, reactor.Try)
	await(t, f, err) // exactly as much as the port carries
	s := with(verbs.SendFence | verbs.SendSolicited)
	f, err = a.q.Submit(context.Background(), &s, &reactor.Payload{SGEs: sges(word), Header: make([]byte, 32)}, reactor.Try)
	await(t, f, err)
}

// Rule: the same of a transfer: INLINE is for a WRITE that the queue carries, SOLICITED for one
// with an immediate.
func TestTransfersOfOthersAreRefused(t *testing.T) {
	a, b := pair(t, reactor.Config{}, reactor.QueueConfig{Inline: 32})
	defer b.close(t)
	defer a.close(t)
	addr, key := b.remote(0)
	_, local := a.bytes(0, 40)
	for name, c := range map[string]struct {
		op    verbs.WROpcode
		flags verbs.SendFlags
		n     uint32
		good  bool
	}{
		"INLINE that fits":   {verbs.WRRDMAWrite, verbs.SendInline, 32, true},
		"INLINE too long":    {verbs.WRRDMAWrite, verbs.SendInline, 33, false},
		"a READ with INLINE": {verbs.WRRDMARead, verbs.SendInline, 8, false},
		"SIGNALED":           {verbs.WRRDMAWrite, verbs.SendSignaled, 8, false},
		"no flag":            {verbs.WRRDMAWrite, 0, 33, true},
		"a fenced READ":      {verbs.WRRDMARead, verbs.SendFence, 8, true},
		"FENCE and INLINE":   {verbs.WRRDMAWrite, verbs.SendFence | verbs.SendInline, 32, true},
		"a solicited WRITE":  {verbs.WRRDMAWrite, verbs.SendSolicited, 8, false},
	} {
		tr := reactor.Transfer{Opcode: c.op, Flags: c.flags, Remote: addr, RKey: key, Local: verbs.SGE{Addr: local.Addr, Length: c.n, LKey: local.LKey}}
		f, err := a.q.Transfer(bounded(t), &tr, reactor.Wait)
		if err == nil {
			_, err = f.Await(bounded(t))
		}
		if c.good && err != nil || !c.good && !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
