package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
)

// rounds is how often each control call is made.
const rounds = 30

// controlCalls times the life of all objects on the dialing device, many times.
func (b *bench) controlCalls(ctx context.Context) []Times {
	var ts timers
	memory, err := verbs.AllocMemory(labData)
	if err != nil {
		return []Times{{Call: "all", Unknown: err.Error()}}
	}
	clear(memory.Bytes())
	for range rounds {
		if ctx.Err() != nil {
			break
		}
		b.life(&ts, memory)
	}
	if err := memory.Close(); err != nil {
		ts.of("munmap").err = err
	}
	return ts.times()
}

// life makes and closes one object of each kind. An object that cannot be made has none below it.
func (b *bench) life(ts *timers, memory *verbs.Memory) {
	var c closers
	made := func(call, end string, make func() (verbs.Object, error)) bool {
		t := ts.of(call)
		t.time(func() error {
			o, err := make()
			if err == nil {
				c.add(func() (err error) { ts.of(end).time(func() error { err = o.Close(); return err }); return err })
			}
			return err
		})
		return !t.failed()
	}
	defer func() { _ = c.close() }() // the timers have the errors
	var dev verbs.Context
	if !made("ibv_open_device", "ibv_close_device", func() (verbs.Object, error) {
		var err error
		dev, _, err = b.open(b.ends[0])
		return dev, err
	}) {
		return
	}
	c.add(func() error { b.drain(dev); return nil })
	ts.of("ibv_query_device").time(func() error { _, err := dev.QueryDevice(); return err })
	ts.of("ibv_query_port").time(func() error { _, err := dev.QueryPort(1); return err })
	ts.of("ibv_query_gid").time(func() error { _, err := dev.QueryGID(1, 0); return err })
	var pd verbs.PD
	var ch verbs.CompChannel
	var cq verbs.CQ
	if !made("ibv_alloc_pd", "ibv_dealloc_pd", func() (_ verbs.Object, err error) { pd, err = dev.AllocPD(); return pd, err }) ||
		!made("ibv_create_comp_channel", "ibv_destroy_comp_channel", func() (_ verbs.Object, err error) { ch, err = dev.CreateCompChannel(); return ch, err }) ||
		!made("ibv_create_cq, 1023", "ibv_destroy_cq", func() (_ verbs.Object, err error) { cq, err = dev.CreateCQ(1023, ch, 0, 0); return cq, err }) {
		return
	}
	made("ibv_reg_mr, 4 KiB", "ibv_dereg_mr", func() (verbs.Object, error) {
		return pd.RegMR(memory.Addr(), labData, memory.Addr(), verbs.AccessLocalWrite)
	})
	made("ibv_create_srq, 255", "ibv_destroy_srq", func() (verbs.Object, error) { return pd.CreateSRQ(&verbs.SRQAttr{MaxWR: 255, MaxSGE: 1}) })
	made("ibv_alloc_mw, type 2", "ibv_dealloc_mw", func() (verbs.Object, error) { return pd.AllocMW(verbs.MWType2) })
	var qp verbs.QP
	if !made("ibv_create_qp, RC", "ibv_destroy_qp", func() (_ verbs.Object, err error) {
		qp, err = pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC,
			Cap: verbs.QPCap{MaxSendWR: 255, MaxRecvWR: 63, MaxSendSGE: 1, MaxRecvSGE: 1}})
		return qp, err
	}) {
		return
	}
	path, own, err := bootstrap.Path{}.On(dev)
	if err != nil {
		ts.of("ibv_modify_qp, INIT").err = err
		return
	}
	own.QPN = qp.Num() // connected to itself
	timed := timedQP{qp, ts}
	if path.Init(timed) == nil && path.Connect(timed, 0, own) == nil {
		made("ibv_create_ah", "ibv_destroy_ah", func() (verbs.Object, error) {
			a, err := path.AH(own)
			if err != nil {
				return nil, err
			}
			return pd.CreateAH(&a)
		})
	}
	ts.of("ibv_query_qp").time(func() error { _, err := qp.Query(); return err })
	_ = timed.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPMState)
}

// timedQP times the steps of a queue pair.
type timedQP struct {
	verbs.QP
	ts *timers
}

// Modify times the call under the name of the state.
func (q timedQP) Modify(a *verbs.QPAttr, mask verbs.QPAttrMask) error {
	t := q.ts.of("ibv_modify_qp, " + a.State.String())
	t.time(func() error { return q.QP.Modify(a, mask) })
	return t.err
}

// registrations times regions of several sizes, whose pages are there.
func (b *bench) registrations(ctx context.Context) (rows []Times) {
	dev, shut, err := b.open(b.ends[0])
	if err != nil {
		return []Times{{Call: "ibv_reg_mr", Unknown: err.Error()}}
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return []Times{{Call: "ibv_reg_mr", Unknown: errors.Join(err, shut()).Error()}}
	}
	const few = 8 // of a large size
	for _, x := range []struct {
		what string
		size int
		n    int
	}{{"4 KiB", 4 << 10, rounds}, {"64 KiB", 64 << 10, rounds}, {"1 MiB", 1 << 20, rounds}, {"16 MiB", 16 << 20, few}, {"64 MiB", 64 << 20, few}} {
		reg, dereg := newTimer("ibv_reg_mr, "+x.what), newTimer("ibv_dereg_mr, "+x.what)
		memory, err := verbs.AllocMemory(x.size)
		if err != nil {
			reg.err, dereg.err = err, err
		} else {
			clear(memory.Bytes())
			for range x.n {
				if ctx.Err() != nil || reg.failed() || dereg.failed() {
					break
				}
				var mr verbs.MR
				reg.time(func() (err error) {
					mr, err = pd.RegMR(memory.Addr(), uint64(x.size), memory.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
					return err
				})
				if mr != nil {
					dereg.time(mr.Close)
				}
			}
			if err := memory.Close(); err != nil {
				dereg.err = errors.Join(dereg.err, err)
			}
		}
		rows = append(rows, reg.times(), dereg.times())
	}
	if err := errors.Join(pd.Close(), shut()); err != nil {
		rows = append(rows, Times{Call: "closing", Unknown: fmt.Sprint(err)})
	}
	return rows
}
