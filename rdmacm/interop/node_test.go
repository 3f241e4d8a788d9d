package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// resolveTimeout is that of udaddy.c and mckey.c, 2000 ms.
const resolveTimeout = 2_000_000_000

// port is port_num of the identifiers: devices with several ports are not tested here.
const port = 1

// node is struct cmatest_node of udaddy.c and mckey.c.
type node struct {
	test       *cmatest
	id         *rdmacm.ID
	connected  bool
	pd         verbs.PD
	cq         *rdmacm.CQ
	mem        *verbs.Memory
	mr         *rdmacm.MR
	ah         verbs.AH
	remoteQPN  uint32
	remoteQKey uint32
}

// cmatest is struct cmatest of both programs, and their options.
type cmatest struct {
	lib          *rdmacm.Library
	channel      *rdmacm.EventChannel
	nodes        []*node
	connectsLeft int

	connections, size, count int
	ps                       verbs.PortSpace
}

// flags returns the options that both programs have.
func (t *cmatest) flags() *flag.FlagSet {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.IntVar(&t.connections, "c", 1, "")
	f.IntVar(&t.count, "C", 10, "")
	f.IntVar(&t.size, "S", 100, "")
	t.ps = verbs.PSUDP
	f.Func("p", "", func(s string) error {
		ps, err := strconv.ParseUint(s, 0, 16)
		t.ps = verbs.PortSpace(ps)
		return err
	})
	return f
}

// allocNodes makes the event channel and the nodes, with identifiers of their own if ids is true.
func (t *cmatest) allocNodes(ids bool) (err error) {
	t.connectsLeft = t.connections
	if t.channel, err = t.lib.CreateEventChannel(); err != nil {
		return err
	}
	for range t.connections {
		n := &node{test: t}
		t.nodes = append(t.nodes, n)
		if ids {
			if n.id, err = t.lib.CreateID(t.channel, n, t.ps); err != nil {
				return err
			}
		}
	}
	return nil
}

// destroyNodes destroys what there is of allocNodes.
func (t *cmatest) destroyNodes() error {
	var errs []error
	for _, n := range t.nodes {
		errs = append(errs, n.destroy())
	}
	if t.channel != nil {
		errs = append(errs, t.channel.Destroy())
	}
	return errors.Join(errs...)
}

func (n *node) destroy() error {
	if n.id == nil {
		return nil
	}
	var errs []error
	if n.ah != nil {
		errs = append(errs, n.ah.Close())
	}
	errs = append(errs, n.id.DestroyQP())
	if n.cq != nil {
		errs = append(errs, n.cq.Destroy())
	}
	if n.mr != nil {
		errs = append(errs, n.mr.Dereg())
	}
	if n.mem != nil {
		errs = append(errs, n.mem.Close())
	}
	if n.pd != nil {
		errs = append(errs, n.pd.Close())
	}
	return errors.Join(append(errs, n.id.Destroy(context.Background()))...)
}

func (n *node) verifyTestParams() error {
	dev, err := n.id.Device()
	if err != nil {
		return err
	}
	attr, err := dev.Context().QueryPort(port)
	if mtu := int(attr.ActiveMTU.Bytes()); err == nil && n.test.count > 0 && n.test.size > mtu {
		err = fmt.Errorf("message size %d is larger than the active MTU %d", n.test.size, mtu)
	}
	return err
}

func (n *node) init() error {
	dev, err := n.id.Device()
	if err != nil {
		return err
	}
	if n.pd, err = dev.Context().AllocPD(); err != nil {
		return err
	}
	if n.cq, err = dev.CreateCQ(max(2*n.test.count, 2)); err != nil {
		return err
	}
	wrs := uint32(max(n.test.count, 1))
	err = n.id.CreateQP(n.pd, &rdmacm.QPInitAttr{
		Cap:  verbs.QPCap{MaxSendWR: wrs, MaxRecvWR: wrs, MaxSendSGE: 1, MaxRecvSGE: 1},
		Type: verbs.QPTUD, SendCQ: n.cq, RecvCQ: n.cq,
	})
	if err != nil {
		return err
	}
	return n.createMessage()
}

func (n *node) createMessage() (err error) {
	if n.test.size == 0 {
		n.test.count = 0
	}
	if n.test.count == 0 {
		return nil
	}
	if n.mem, err = verbs.AllocMemory(n.test.size + verbs.GRHLen); err != nil {
		return err
	}
	n.mr, err = rdmacm.RegMR(n.pd, n.mem.Bytes()[:n.test.size+verbs.GRHLen], verbs.AccessLocalWrite)
	return err
}

func (n *node) postRecvs() error {
	for range n.test.count {
		if _, err := n.id.PostRecvList([]rdmacm.RecvWR{{SGL: []verbs.SGE{n.mr.SGE(0, n.test.size+verbs.GRHLen)}}}); err != nil {
			return err
		}
	}
	return nil
}

// postSends posts the messages. The last one may have flags of its own.
func (n *node) postSends(flags, last verbs.SendFlags) error {
	if !n.connected {
		return nil
	}
	for i := range n.test.count {
		if i == n.test.count-1 {
			flags = last
		}
		_, err := n.id.PostSendList([]rdmacm.SendWR{{
			SGL: []verbs.SGE{n.mr.SGE(0, n.test.size)}, Opcode: verbs.WRSendWithImm, Flags: flags, Imm: n.id.QP().Num(),
			AH: n.ah, RemoteQPN: n.remoteQPN, RemoteQKey: n.remoteQKey,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// reach makes the address handle for the peer or the group that an event has brought.
func (n *node) reach(way *verbs.UDParam) (err error) {
	n.remoteQPN, n.remoteQKey = way.QPNum, way.QKey
	if n.ah, err = n.pd.CreateAH(&way.AH); err == nil {
		n.connected = true
	}
	n.test.connectsLeft--
	return err
}

// createReplyAH makes the address handle for the sender of the datagram in mem.
func (n *node) createReplyAH(wc *verbs.WC) error {
	grh := n.mem.Bytes()[:verbs.GRHLen]
	dest, v2, err := verbs.GRHDest(grh)
	if err != nil {
		return err
	}
	gid, err := verbs.FindGID(n.pd.Context(), port, dest, v2)
	if err != nil {
		return err
	}
	way, err := verbs.InitAHFromGRH(grh, port, uint8(gid.Index))
	if err != nil {
		return err
	}
	if n.ah, err = n.pd.CreateAH(&way); err != nil {
		return err
	}
	n.remoteQPN = wc.Imm()
	attr, err := n.id.QP().Query()
	n.remoteQKey = attr.QKey
	return err
}

// pollCQs takes the completions of one message exchange of each node. Where the C programs poll it waits.
func (t *cmatest) pollCQs(ctx context.Context) error {
	for _, n := range t.nodes {
		if !n.connected {
			continue
		}
		for range t.count {
			wc, err := n.cq.Next(ctx)
			if err == nil {
				err = wc.Err() // the C programs do not look
			}
			if err == nil && n.ah == nil {
				err = n.createReplyAH(&wc)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// errAbsent means that the peer has no listener yet.
var errAbsent = errors.New("the peer has no listener")

// connectEvents handles events until all nodes are connected.
func (t *cmatest) connectEvents(ctx context.Context, handle func(*rdmacm.Event) error) error {
	for t.connectsLeft > 0 {
		ev, err := t.channel.GetEvent(ctx)
		if err != nil {
			return err
		}
		switch err = handle(ev); ev.Type {
		case verbs.CMAddrError, verbs.CMRouteError, verbs.CMConnectError, verbs.CMRejected, verbs.CMMulticastError:
			err = fmt.Errorf("event %v: %w", ev.Type, ev.Err())
		case verbs.CMUnreachable:
			err = fmt.Errorf("event %v with status %d: %w", ev.Type, ev.Status, errAbsent)
		}
		ev.Ack()
		if err != nil {
			return err
		}
	}
	return nil
}
