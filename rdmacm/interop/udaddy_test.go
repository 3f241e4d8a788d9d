package interop

import (
	"context"
	"errors"
	"strings"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// udaddyPort is the port of udaddy.c, which has no option for another one.
const udaddyPort = "7174"

// udaddyRun is udaddy.c at work.
type udaddyRun struct {
	cmatest
	accepted int // conn_index
	tos      uint
	hasTOS   bool
	rai      rdmacm.AddrInfo
}

// udaddy is udaddy.c: a client with -s, otherwise a server.
func udaddy(ctx context.Context, lib *rdmacm.Library, ready func(), args ...string) (err error) {
	u := udaddyRun{cmatest: cmatest{lib: lib}}
	f := u.flags()
	dst, src := f.String("s", "", ""), f.String("b", "", "")
	f.UintVar(&u.tos, "t", 0, "")
	space, format := f.String("P", "udp", ""), f.String("f", "name", "")
	if err = f.Parse(args); err != nil {
		return err
	}
	u.hasTOS = u.tos != 0
	hints := rdmacm.AddrInfo{PortSpace: u.ps}
	if strings.EqualFold(*space, "ipoib") {
		hints.PortSpace = verbs.PSIPoIB
	}
	switch strings.ToLower(*format) {
	case "ip":
		hints.Flags = rdmacm.AINumericHost
	case "gid":
		hints.Flags, hints.Family = rdmacm.AINumericHost|rdmacm.AIFamily, rdmacm.AFIB
	}
	u.ps = hints.PortSpace
	defer func() { err = errors.Join(err, u.destroyNodes()) }()
	if err = u.allocNodes(*dst != ""); err != nil {
		return err
	}
	if *dst == "" {
		return u.server(ctx, ready, *src, hints)
	}
	return u.client(ctx, *src, *dst, hints)
}

// address is get_rdma_addr of common.c.
func (u *udaddyRun) address(ctx context.Context, src, dst string, hints rdmacm.AddrInfo) error {
	if src != "" || dst == "" {
		passive, service := hints, ""
		passive.Flags |= rdmacm.AIPassive
		if dst == "" {
			service = udaddyPort
		}
		res, err := rdmacm.GetAddrInfo(ctx, src, service, &passive)
		if err != nil {
			return err
		}
		u.rai, hints.Src, hints.SrcIB = res[0], res[0].Src, res[0].SrcIB
	}
	if dst == "" {
		return nil
	}
	res, err := rdmacm.GetAddrInfo(ctx, dst, udaddyPort, &hints)
	if err == nil {
		u.rai = res[0]
	}
	return err
}

func (u *udaddyRun) handle(ctx context.Context, ev *rdmacm.Event) error {
	switch ev.Type {
	case verbs.CMAddrResolved:
		return u.addr(ctx, ev.ID)
	case verbs.CMRouteResolved:
		return u.route(ctx, ev.ID.Context.(*node))
	case verbs.CMConnectRequest:
		return u.request(ctx, ev.ID)
	case verbs.CMEstablished:
		return ev.ID.Context.(*node).reach(&ev.UD)
	}
	return nil
}

func (u *udaddyRun) addr(ctx context.Context, id *rdmacm.ID) error {
	if u.hasTOS {
		if err := id.SetTOS(uint8(u.tos)); err != nil {
			return err
		}
	}
	return id.ResolveRoute(ctx, resolveTimeout)
}

// prepare does what both sides do before they connect.
func (n *node) prepare() error {
	if err := n.verifyTestParams(); err != nil {
		return err
	}
	if err := n.init(); err != nil {
		return err
	}
	return n.postRecvs()
}

func (u *udaddyRun) route(ctx context.Context, n *node) error {
	if err := n.prepare(); err != nil {
		return err
	}
	return n.id.Connect(ctx, &verbs.ConnParam{PrivateData: u.rai.Connect})
}

func (u *udaddyRun) request(ctx context.Context, id *rdmacm.ID) error {
	if u.accepted == len(u.nodes) {
		return errors.Join(errors.New("a request too many"), id.Reject(nil), id.Destroy(ctx))
	}
	n := u.nodes[u.accepted]
	u.accepted++
	n.id, id.Context = id, n
	if err := n.prepare(); err != nil {
		return errors.Join(err, id.Reject(nil))
	}
	if err := id.Accept(ctx, &verbs.ConnParam{QPNum: id.QP().Num()}); err != nil {
		return errors.Join(err, id.Reject(nil))
	}
	n.connected = true
	u.connectsLeft--
	return nil
}

func (u *udaddyRun) server(ctx context.Context, ready func(), src string, hints rdmacm.AddrInfo) (err error) {
	listener, err := u.lib.CreateID(u.channel, nil, u.ps)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, listener.Destroy(context.Background())) }()
	if err = u.address(ctx, src, "", hints); err != nil {
		return err
	}
	if u.rai.Family == rdmacm.AFIB {
		err = listener.BindIB(u.rai.SrcIB)
	} else {
		err = listener.BindAddr(u.rai.Src)
	}
	if err != nil {
		return err
	}
	if err = listener.Listen(0); err != nil {
		return err
	}
	ready()
	if err = u.connectEvents(ctx, func(ev *rdmacm.Event) error { return u.handle(ctx, ev) }); err != nil {
		return err
	}
	if err = u.pollCQs(ctx); err != nil {
		return err
	}
	for _, n := range u.nodes {
		if err = n.postSends(verbs.SendSignaled, verbs.SendSignaled); err != nil {
			return err
		}
	}
	return u.pollCQs(ctx)
}

func (u *udaddyRun) client(ctx context.Context, src, dst string, hints rdmacm.AddrInfo) error {
	if err := u.address(ctx, src, dst, hints); err != nil {
		return err
	}
	for _, n := range u.nodes {
		var err error
		if u.rai.Family == rdmacm.AFIB {
			err = n.id.ResolveIB(ctx, u.rai.SrcIB, u.rai.DstIB, resolveTimeout)
		} else {
			err = n.id.ResolveAddr(ctx, u.rai.Src, u.rai.Dst, resolveTimeout)
		}
		if err != nil {
			return err
		}
	}
	if err := u.connectEvents(ctx, func(ev *rdmacm.Event) error { return u.handle(ctx, ev) }); err != nil {
		return err
	}
	for _, n := range u.nodes {
		if err := n.postSends(0, 0); err != nil {
			return err
		}
	}
	return u.pollCQs(ctx)
}
