package interop

import (
	"context"
	"flag"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// program is a translation of a C program, with the arguments of its command line. It calls ready when its peer may
// begin.
type program func(ctx context.Context, lib *rdmacm.Library, ready func(), args ...string) error

// end is where each translation ends: the labels out_... of the C program.
type end []func() error

func (e *end) then(undo func() error) { *e = append(*e, undo) }

// run undoes all steps, the last one first. It keeps the first error.
func (e *end) run(err *error) {
	for i := len(*e) - 1; i >= 0; i-- {
		if uerr := (*e)[i](); *err == nil {
			*err = uerr
		}
	}
}

// destroys adds the end of an identifier.
func (e *end) destroys(id *rdmacm.ID) {
	e.then(func() error { return id.Destroy(context.Background()) })
}

// messageSize is the size of the messages of rdma_client and rdma_server.
const messageSize = 16

// attr describes the queue pairs of rdma_client and rdma_server.
func attr() *rdmacm.QPInitAttr {
	return &rdmacm.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: messageSize}, SQSigAll: true}
}

// messages is recv_msg and send_msg with their regions. Without inline data the send has one, too.
type messages struct {
	send, recv []byte
	mr, sendMR *rdmacm.MR
	flags      verbs.SendFlags
}

func register(id *rdmacm.ID, inline uint32, out *end) (m messages, err error) {
	mem, err := verbs.AllocMemory(2 * messageSize)
	if err != nil {
		return m, err
	}
	out.then(mem.Close)
	m.recv, m.send = mem.Bytes()[:messageSize], mem.Bytes()[messageSize:2*messageSize]
	if m.mr, err = id.RegMsgs(m.recv); err != nil {
		return m, err
	}
	out.then(m.mr.Dereg)
	if inline >= messageSize {
		m.flags = verbs.SendInline
		return m, nil
	}
	if m.sendMR, err = id.RegMsgs(m.send); err == nil {
		out.then(m.sendMR.Dereg)
	}
	return m, err
}

func addressAndPort(args []string, address string) (node, service string, err error) {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.StringVar(&node, "s", address, "")
	f.StringVar(&service, "p", "7471", "")
	return node, service, f.Parse(args)
}

// rdmaClient is rdma_client.c.
func rdmaClient(ctx context.Context, lib *rdmacm.Library, _ func(), args ...string) (err error) {
	var out end
	defer out.run(&err)
	server, port, err := addressAndPort(args, "127.0.0.1")
	if err != nil {
		return err
	}
	res, err := rdmacm.GetAddrInfo(ctx, server, port, &rdmacm.AddrInfo{PortSpace: verbs.PSTCP})
	if err != nil {
		return err
	}
	attr := attr()
	id, err := lib.CreateEndpoint(ctx, &res[0], nil, attr)
	if err != nil {
		return err
	}
	out.destroys(id)
	m, err := register(id, attr.Cap.MaxInlineData, &out)
	if err != nil {
		return err
	}
	if err = id.PostRecv(0, m.recv, m.mr); err != nil {
		return err
	}
	if err = id.Connect(ctx, nil); err != nil {
		return err
	}
	out.then(func() error { return id.Disconnect(ctx) })
	if err = id.PostSend(0, m.send, m.sendMR, m.flags); err != nil {
		return err
	}
	wc, err := id.GetSendComp(ctx)
	if err != nil {
		return err
	}
	if err = wc.Err(); err != nil { // rdma_client.c does not look
		return err
	}
	if wc, err = id.GetRecvComp(ctx); err != nil {
		return err
	}
	return wc.Err()
}

// rdmaServer is rdma_server.c.
func rdmaServer(ctx context.Context, lib *rdmacm.Library, ready func(), args ...string) (err error) {
	var out end
	defer out.run(&err)
	server, port, err := addressAndPort(args, "0.0.0.0")
	if err != nil {
		return err
	}
	res, err := rdmacm.GetAddrInfo(ctx, server, port, &rdmacm.AddrInfo{Flags: rdmacm.AIPassive, PortSpace: verbs.PSTCP})
	if err != nil {
		return err
	}
	listener, err := lib.CreateEndpoint(ctx, &res[0], nil, attr())
	if err != nil {
		return err
	}
	out.destroys(listener)
	if err = listener.Listen(0); err != nil {
		return err
	}
	ready()
	id, err := listener.GetRequest(ctx)
	if err != nil {
		return err
	}
	out.destroys(id)
	qp, err := id.QP().Query()
	if err != nil {
		return err
	}
	m, err := register(id, qp.Cap.MaxInlineData, &out)
	if err != nil {
		return err
	}
	if err = id.PostRecv(0, m.recv, m.mr); err != nil {
		return err
	}
	if err = id.Accept(ctx, nil); err != nil {
		return err
	}
	out.then(func() error { return id.Disconnect(ctx) })
	wc, err := id.GetRecvComp(ctx)
	if err != nil {
		return err
	}
	if err = wc.Err(); err != nil { // rdma_server.c does not look
		return err
	}
	if err = id.PostSend(0, m.send, m.sendMR, m.flags); err != nil {
		return err
	}
	// Its status does not matter: the client disconnects when it has the message, and its device may leave that
	// unacknowledged (Linux 6.12 rxe_resp.c, do_complete).
	_, err = id.GetSendComp(ctx)
	return err
}
