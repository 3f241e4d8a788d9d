package main

import (
	"context"
	"errors"

	"github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
)

// memoryUse is the process's memory: the bytes that the kernel has pinned for devices (VmPin: ib_umem_get of
// drivers/infiniband/core/umem.c), the other locked bytes, and the resident bytes.
type memoryUse struct{ pinned, locked, mapped int64 }

// kB is the unit of /proc/self/status.
const kB = 1 << 10

func (t tree) memoryUse() (m memoryUse, err error) {
	for name, into := range map[string]*int64{"VmPin": &m.pinned, "VmLck": &m.locked, "VmRSS": &m.mapped} {
		n, ferr := t.field("proc/self/status", name)
		*into = n * kB
		err = errors.Join(err, ferr)
	}
	return m, err
}

func (m memoryUse) since(before memoryUse) memoryUse {
	return memoryUse{m.pinned - before.pinned, m.locked - before.locked, m.mapped - before.mapped}
}

// pinned makes one object after the other on the dialing device, and reads what each adds.
func (b *bench) pinned(ctx context.Context) (rows []Pinned) {
	var c closers
	var dev verbs.Context
	var pd verbs.PD
	var cq verbs.CQ
	var srq verbs.SRQ
	memory, err := verbs.AllocMemory(1 << 20)
	if err != nil {
		return []Pinned{{Object: "memory", Unknown: err.Error()}}
	}
	c.add(memory.Close)
	clear(memory.Bytes()) // its pages are there before it is registered
	attr := verbs.DeviceAttr{}
	for _, x := range []struct {
		what string
		make func() (verbs.Object, error)
	}{
		{"an open device", func() (verbs.Object, error) {
			var shut func() error
			if dev, shut, err = b.open(b.ends[0]); err != nil {
				return nil, err
			}
			c.add(shut)
			attr, err = dev.QueryDevice()
			return nil, err
		}},
		{"a protection domain", func() (verbs.Object, error) { pd, err = dev.AllocPD(); return pd, err }},
		{"a completion channel", func() (verbs.Object, error) { return dev.CreateCompChannel() }},
		{"a completion queue of 8191", func() (verbs.Object, error) { cq, err = dev.CreateCQ(8191, nil, 0, 0); return cq, err }},
		{"a region of 1 MiB", func() (verbs.Object, error) {
			return pd.RegMR(memory.Addr(), uint64(len(memory.Bytes())), memory.Addr(), verbs.AccessLocalWrite)
		}},
		{"a shared receive queue of 1023", func() (verbs.Object, error) {
			srq, err = pd.CreateSRQ(&verbs.SRQAttr{MaxWR: uint32(max(1, min(1023, attr.MaxSRQWR))), MaxSGE: 1})
			return srq, err
		}},
		{"a queue pair of 256 sends and 64 receives", func() (verbs.Object, error) {
			return pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: runtime.DefaultSendDepth,
				MaxRecvWR: runtime.DefaultRecvCredits, MaxSendSGE: runtime.DefaultMaxSGE, MaxRecvSGE: 1}})
		}},
		{"a queue pair of 256 sends with the shared receive queue", func() (verbs.Object, error) {
			return pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, SRQ: srq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: runtime.DefaultSendDepth,
				MaxSendSGE: runtime.DefaultMaxSGE, MaxInlineData: 64}})
		}},
		{"a memory window of type 2", func() (verbs.Object, error) { return pd.AllocMW(verbs.MWType2) }},
	} {
		row := Pinned{Object: x.what}
		switch {
		case ctx.Err() != nil:
			row.Unknown = errCut.Error()
		case dev == nil && len(rows) > 0 || pd == nil && len(rows) > 1:
			row.Unknown = "what it belongs to could not be made"
		default:
			row.Unknown = b.added(&row, func() error {
				o, err := x.make()
				if err == nil && o != nil {
					c.add(o.Close)
				}
				return err
			})
		}
		rows = append(rows, row)
	}
	if err := c.close(); err != nil {
		rows = append(rows, Pinned{Object: "closing", Unknown: err.Error()})
	}
	return rows
}

// added fills in what f adds to the process's memory, and returns why that is unknown.
func (b *bench) added(row *Pinned, f func() error) (why string) {
	before, err := b.sys.memoryUse()
	ferr := f()
	after, err2 := b.sys.memoryUse()
	if err := errors.Join(ferr, err, err2); err != nil {
		return err.Error()
	}
	d := after.since(before)
	row.Pinned, row.Locked, row.Mapped = d.pinned, d.locked, d.mapped
	return ""
}
