// Command 09-datagrams-and-multicast sends a datagram to a server, which answers to a multicast group.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

const (
	datagramSize = 64
	patience     = 5 * time.Second // datagrams may be lost
)

var group = netip.MustParseAddr("239.7.7.10")

func main() { ends.Own{Serve: server, Dial: client}.Main() }

func attr() *rdmacm.QPInitAttr {
	return &rdmacm.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: datagramSize}}
}

// hearing posts a receive for one datagram, and calls use with a function that prints it.
func hearing(id *rdmacm.ID, use func(print func(ctx context.Context, w io.Writer, who string) error) error) (err error) {
	m, err := verbs.AllocMemory(verbs.GRHLen + datagramSize) // a datagram comes behind a header with its sender
	if err != nil {
		return err
	}
	defer ends.Undo(&err, m.Close)
	mr, err := id.RegMsgs(m.Bytes()[:verbs.GRHLen+datagramSize])
	if err != nil {
		return err
	}
	defer ends.Undo(&err, mr.Dereg)
	if err = id.PostRecv(0, mr.Bytes(), mr); err != nil { // a datagram that finds no receive is lost
		return err
	}
	defer ends.Undo(&err, id.DestroyQP) // before the memory: the receive may be outstanding
	return use(func(ctx context.Context, w io.Writer, who string) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		wc, err := id.GetRecvComp(ctx)
		if err = errors.Join(err, wc.Err()); err != nil {
			return fmt.Errorf("no datagram came to %s: %w", who, err)
		}
		fmt.Fprintf(w, "%s got %q\n", who, mr.Bytes()[verbs.GRHLen:wc.ByteLen])
		return nil
	})
}

// tell sends a datagram by the way that an event has brought: to a queue pair, or to a group.
func tell(ctx context.Context, id *rdmacm.ID, way *verbs.UDParam, text string) (err error) {
	device, err := id.Device()
	if err != nil {
		return err
	}
	ah, err := device.PD().CreateAH(&way.AH)
	if err != nil {
		return err
	}
	defer ends.Undo(&err, ah.Close) // after the completion: the device needs it until then
	if err = id.PostUDSend(0, []byte(text), nil, verbs.SendSignaled, ah, way.QPNum); err != nil {
		return err
	}
	wc, err := id.GetSendComp(ctx)
	return errors.Join(err, wc.Err())
}

// withMember calls use with an identifier that can join groups: one either connects or joins, so this is one of its own.
func withMember(lib *rdmacm.Library, at netip.Addr, use func(id *rdmacm.ID) error) (err error) {
	id, err := lib.CreateID(nil, nil, verbs.PSUDP)
	if err != nil {
		return err
	}
	defer ends.Destroy(id, &err)
	if err = id.BindAddr(netip.AddrPortFrom(at, 0)); err != nil {
		return err
	}
	if err = id.CreateQP(nil, attr()); err != nil {
		return err
	}
	return use(id)
}

// joined calls use while the identifier is in the group. A member that only sends gets nothing that is sent to the group.
func joined(ctx context.Context, id *rdmacm.ID, kind rdmacm.MCJoinFlag, use func() error) (err error) {
	if err = id.JoinMulticastEx(ctx, group, kind, nil); err != nil {
		return err
	}
	defer ends.Undo(&err, func() error { return id.LeaveMulticast(group) })
	return use()
}

// endpoint makes an endpoint of port space UDP.
func endpoint(ctx context.Context, lib *rdmacm.Library, addr string, flags rdmacm.AIFlags) (*rdmacm.ID, error) {
	node, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	res, err := rdmacm.GetAddrInfo(ctx, node, service, &rdmacm.AddrInfo{Flags: flags, PortSpace: verbs.PSUDP})
	if err != nil {
		return nil, err
	}
	return lib.CreateEndpoint(ctx, &res[0], nil, attr())
}

// client joins the group, asks for the queue pair of the server, and sends there.
func client(ctx context.Context, w io.Writer, addr string) (err error) {
	lib, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return err
	}
	defer ends.Undo(&err, lib.Close)
	id, err := endpoint(ctx, lib, addr, 0)
	if err != nil {
		return err
	}
	defer ends.Destroy(id, &err)
	return withMember(lib, id.LocalAddr().Addr(), func(member *rdmacm.ID) error {
		return hearing(member, func(print func(context.Context, io.Writer, string) error) error {
			return joined(ctx, member, rdmacm.MCFullMember, func() error {
				if err := id.Connect(ctx, nil); err != nil { // no connection: the event has the way to the server's queue pair
					return err
				}
				if err := tell(ctx, id, &id.Event().UD, "hello, server"); err != nil {
					return err
				}
				return print(ctx, w, "the group")
			})
		})
	})
}

// server takes one datagram of each client.
func server(ctx context.Context, w io.Writer, addr string, listening func(at string)) (err error) {
	lib, err := rdmacm.Open(rdmacm.Config{})
	if err != nil {
		return err
	}
	defer ends.Undo(&err, lib.Close)
	listener, err := endpoint(ctx, lib, addr, rdmacm.AIPassive)
	if err != nil {
		return err
	}
	defer ends.Destroy(listener, &err)
	return ends.Requests(ctx, w, lib, listener, listening, func(id *rdmacm.ID) error {
		return hearing(id, func(print func(context.Context, io.Writer, string) error) error {
			if err := id.Accept(ctx, nil); err != nil {
				return err
			}
			if err := print(ctx, w, "the server"); err != nil {
				return err
			}
			return withMember(lib, id.LocalAddr().Addr(), func(member *rdmacm.ID) error {
				return joined(ctx, member, rdmacm.MCSendOnlyFullMember, func() error {
					return tell(ctx, member, &member.Event().UD, "hello, group")
				})
			})
		})
	})
}
