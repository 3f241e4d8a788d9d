package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// granted asks the dialing device for what the runtime asks, and for the largest of each.
func (b *bench) granted(ctx context.Context) (g Granted) {
	dev, shut, err := b.open(b.ends[0])
	if err != nil {
		explainAll(&g, err.Error())
		return g
	}
	attr, err := dev.QueryDevice()
	g.Device = item(attr, err)
	pd, pdErr := dev.AllocPD()
	cq, cqErr := dev.CreateCQ(1, nil, 0, 0)
	if err := errors.Join(err, pdErr, cqErr); err != nil {
		explainAll(&g, err.Error())
		_ = shut()
		return g
	}
	g.Caps, g.Opcodes = known(capNames(attr.Caps)), known(opcodeNames(attr.Opcodes))
	a := asker{ctx: ctx, dev: dev, attr: attr, pd: pd, cq: cq}
	g.QueuePairs = a.usual()
	for _, t := range [...]verbs.QPType{verbs.QPTRC, verbs.QPTUC, verbs.QPTUD, verbs.QPTXRCSend} {
		l, refusals := a.limits(t)
		g.Limits, g.Refusals = append(g.Limits, l), append(g.Refusals, refusals...)
	}
	g.CQs, g.Resize = a.queues(), a.resize()
	if err := errors.Join(cq.Close(), pd.Close(), shut()); err != nil {
		g.QueuePairs = append(g.QueuePairs, QPGrant{For: "closing", Unknown: err.Error()})
	}
	return g
}

// asker makes objects only to see whether they can be made.
type asker struct {
	ctx  context.Context
	dev  verbs.Context
	attr verbs.DeviceAttr
	pd   verbs.PD
	cq   verbs.CQ
}

// make makes a queue pair and closes it.
func (a *asker) make(t verbs.QPType, c verbs.QPCap) (granted verbs.QPCap, err error) {
	if a.ctx.Err() != nil {
		return granted, errCut
	}
	init := verbs.QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq, Type: t, Cap: c}
	qp, err := a.pd.CreateQP(&init)
	if err != nil {
		return granted, err
	}
	return init.Cap, qp.Close()
}

// usual asks for what the runtime asks by default, and for more.
func (a *asker) usual() (rows []QPGrant) {
	usual := verbs.QPCap{MaxSendWR: runtime.DefaultSendDepth, MaxRecvWR: runtime.DefaultRecvCredits, MaxSendSGE: runtime.DefaultMaxSGE + 1,
		MaxRecvSGE: 1, MaxInlineData: runtime.DefaultInline}
	small := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	deep := usual
	deep.MaxSendWR, deep.MaxRecvWR = 4096, 4096
	for _, x := range []struct {
		what string
		t    verbs.QPType
		c    verbs.QPCap
	}{
		{"the smallest", verbs.QPTRC, small}, {"a connection", verbs.QPTRC, usual}, {"a deep connection", verbs.QPTRC, deep},
		{"datagrams", verbs.QPTUD, usual}, {"an unreliable connection", verbs.QPTUC, usual},
	} {
		row := QPGrant{For: x.what, Type: x.t.String(), Asked: capacities(x.c)}
		if got, err := a.make(x.t, x.c); err != nil {
			row.Unknown = err.Error()
		} else {
			row.Granted = capacities(got)
		}
		rows = append(rows, row)
	}
	return rows
}

// capacities is a QPCap for people.
func capacities(c verbs.QPCap) string {
	return fmt.Sprintf("%d sends of %d, %d receives of %d, inline %d", c.MaxSendWR, c.MaxSendSGE, c.MaxRecvWR, c.MaxRecvSGE, c.MaxInlineData)
}

// The largest values that are tried.
const (
	mostInline   = 1 << 13
	mostElements = 1 << 9
	mostDepth    = 1 << 16 // more than any reactor uses; some drivers take gigabytes for their own largest
)

// limits finds the largest values for a type.
func (a *asker) limits(t verbs.QPType) (l QPLimits, refusals []Refusal) {
	l = QPLimits{Type: t.String()}
	one := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	if t == verbs.QPTXRCSend { // has no receive queue
		one.MaxRecvWR, one.MaxRecvSGE = 0, 0
	}
	if _, err := a.make(t, one); err != nil {
		l.Unknown = err.Error()
		return l, nil
	}
	four := one
	four.MaxSendSGE = runtime.DefaultMaxSGE
	find := func(name string, into *int, most int, c verbs.QPCap, field func(c *verbs.QPCap) *uint32) {
		n, refusal := largest(most, func(n int) error {
			c := c
			*field(&c) = uint32(n)
			got, err := a.make(t, c)
			if err == nil && *field(&got) < uint32(n) {
				err = fmt.Errorf("no error, but %d granted", *field(&got))
			}
			return err
		})
		*into = n
		if refusal != nil {
			refusals = append(refusals, Refusal{Type: l.Type, What: name, Asked: n + 1, Error: refusal.Error()})
		}
	}
	find("send depth", &l.SendDepth, mostDepth, one, func(c *verbs.QPCap) *uint32 { return &c.MaxSendWR })
	find("send elements", &l.SendSGE, mostElements, one, func(c *verbs.QPCap) *uint32 { return &c.MaxSendSGE })
	find("inline", &l.Inline, mostInline, one, func(c *verbs.QPCap) *uint32 { return &c.MaxInlineData })
	find("depth with 4 elements", &l.Usual, mostDepth, four, func(c *verbs.QPCap) *uint32 { return &c.MaxSendWR })
	if one.MaxRecvWR > 0 {
		find("receive depth", &l.RecvDepth, mostDepth, one, func(c *verbs.QPCap) *uint32 { return &c.MaxRecvWR })
		find("receive elements", &l.RecvSGE, mostElements, one, func(c *verbs.QPCap) *uint32 { return &c.MaxRecvSGE })
	}
	return l, refusals
}

// largest returns the largest n up to most for which ask returns nil, by bisection, and what n+1 caused: nil if
// n is most. It takes ask as monotonic, and 0 as granted.
func largest(most int, ask func(n int) error) (n int, refusal error) {
	if refusal = ask(most); refusal == nil {
		return most, nil
	}
	good, bad := 0, most
	for bad-good > 1 {
		if errors.Is(refusal, errCut) {
			return good, refusal
		}
		middle := good + (bad-good)/2
		if err := ask(middle); err == nil {
			good = middle
		} else {
			bad, refusal = middle, err
		}
	}
	return good, refusal
}

// queues asks for completion queues: 2^n-1 entries become 2^n with drivers that need one more.
func (a *asker) queues() (rows []CQGrant) {
	for _, n := range [...]int{1, 127, 128, 1000, 4095, 4096, 8191, 8192, 16383, 16384, 65535, a.attr.MaxCQE} {
		row := CQGrant{Asked: n}
		err := errCut
		if a.ctx.Err() == nil {
			var cq verbs.CQ
			if cq, err = a.dev.CreateCQ(n, nil, 0, 0); err == nil {
				row.Granted = cq.Capacity()
				err = cq.Close()
			}
		}
		if err != nil {
			row.Unknown = err.Error()
		}
		rows = append(rows, row)
	}
	return rows
}

// resize tries to make a completion queue larger.
func (a *asker) resize() Item[string] {
	const from, to = 128, 1000
	cq, err := a.dev.CreateCQ(from, nil, 0, 0)
	if err != nil {
		return unknown[string]("%v", err)
	}
	was := cq.Capacity()
	if err = cq.Resize(to); err != nil {
		return known(fmt.Sprintf("refused: %v%s", err, ending(cq.Close())))
	}
	return known(fmt.Sprintf("%d to %d: %d to %d%s", from, to, was, cq.Capacity(), ending(cq.Close())))
}

// ending is the failure of closing something, for the end of a text.
func ending(err error) string {
	if err == nil {
		return ""
	}
	return "; closing: " + err.Error()
}

// capNames are the names of capabilities that the runtime knows, and the bits of all.
func capNames(c verbs.DeviceCaps) string {
	var names []string
	for _, x := range []struct {
		bit  verbs.DeviceCaps
		name string
	}{
		{verbs.CapCurrQPStateMod, "CURR_QP_STATE_MOD"}, {verbs.CapShutdownPort, "SHUTDOWN_PORT"}, {verbs.CapPortActiveEvent, "PORT_ACTIVE_EVENT"},
		{verbs.CapRCRNRNakGen, "RC_RNR_NAK_GEN"}, {verbs.CapSRQResize, "SRQ_RESIZE"}, {verbs.CapMemWindow, "MEM_WINDOW"}, {verbs.CapXRC, "XRC"},
		{verbs.CapMemMgt, "MEM_MGT_EXTENSIONS"}, {verbs.CapMemWindow2A, "MEM_WINDOW_TYPE_2A"}, {verbs.CapMemWindow2B, "MEM_WINDOW_TYPE_2B"},
		{verbs.CapFlushGlobal, "FLUSH_GLOBAL"}, {verbs.CapFlushPersistent, "FLUSH_PERSISTENT"}, {verbs.CapAtomicWrite, "ATOMIC_WRITE"},
	} {
		if c&x.bit != 0 {
			names = append(names, x.name)
		}
	}
	return fmt.Sprintf("%#x: %s", uint64(c), strings.Join(names, " "))
}

// opcodeNames are the names of a set of opcodes.
func opcodeNames(s verbs.OpcodeSet) string {
	var names []string
	for o := verbs.WROpcode(0); o < 32; o++ {
		if s.Has(o) {
			names = append(names, o.String())
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
