// Command 07-verbs-alone moves data with package verbs alone, without a runtime.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/verbena-rdma/verbena/examples/ends"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

func main() { ends.TCP{Serve: b, Dial: a}.Main() }

// open opens soft:NAME or ibv:NAME; without a name the first device.
func open(device string) (verbs.Context, error) {
	kind, name, _ := strings.Cut(device, ":")
	var p verbs.Provider = soft.Default()
	if kind == "ibv" {
		p = ibv.Default()
	}
	if devices, err := p.Devices(); name == "" && err == nil && len(devices) > 0 {
		name = devices[0].Name
	}
	return p.Open(name)
}

// shut closes an object; err gets the error if it has none yet.
func shut(o verbs.Object, err *error) {
	if cerr := o.Close(); *err == nil {
		*err = cerr
	}
}

// The layout of the memory: areas for data, and one for the records that describe them to the device.
const place, written, received, text, records = 4096, 0, 4096, 8192, 12288

// end is one end of a connection.
type end struct {
	cq    verbs.CQ
	qp    verbs.QP
	m     *verbs.Memory
	mr    verbs.MR
	there [2]uint64 // address and key of the other end's memory
}

// exchange is bootstrap.Client or bootstrap.Server.
type exchange func(ctx context.Context, nc net.Conn, own []bootstrap.Dest, ready func(peers []bootstrap.Dest) error) error

// with makes all objects, connects to the end behind nc, calls use, and closes them in the opposite order.
func with(ctx context.Context, nc net.Conn, meet exchange, use func(e *end) error) (err error) {
	dev, err := open(os.Getenv("VERBENA_DEVICE"))
	if err != nil {
		return err
	}
	defer shut(dev, &err)
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	defer shut(pd, &err)
	var e end
	if e.cq, err = dev.CreateCQ(3, nil, 0, 0); err != nil { // room for all outstanding requests
		return err
	}
	defer shut(e.cq, &err)
	if e.m, err = verbs.AllocMemory(4 * place); err != nil {
		return err
	}
	defer shut(e.m, &err)
	if e.mr, err = pd.RegMR(e.m.Addr(), records, e.m.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return err
	}
	defer shut(e.mr, &err)
	attr := verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if e.qp, err = pd.CreateQP(&attr); err != nil {
		return err
	}
	defer shut(e.qp, &err)
	if err := e.connect(ctx, nc, meet); err != nil {
		return err
	}
	return use(&e)
}

// connect exchanges the addresses of the queue pairs and of the memory over nc, and connects. A receive is posted
// before the other end can send.
func (e *end) connect(ctx context.Context, nc net.Conn, meet exchange) error {
	path, here, err := bootstrap.Path{}.On(e.qp.Context())
	if err != nil {
		return err
	}
	here.QPN, here.PSN = e.qp.Num(), bootstrap.RandomPSN()
	if err := path.Init(e.qp); err != nil {
		return err
	}
	recv, at := verbs.Records[verbs.RecvWR](e.m, records, 1)
	recv[0] = verbs.RecvWR{SGList: e.element(0, received, place), NumSGE: 1}
	if _, err := verbs.PostRecv(e.qp, at, 1); err != nil {
		return err
	}
	if err := binary.Write(nc, binary.BigEndian, [2]uint64{e.mr.Addr() + written, uint64(e.mr.RKey())}); err != nil {
		return err
	}
	if err := binary.Read(nc, binary.BigEndian, &e.there); err != nil {
		return err
	}
	return meet(ctx, nc, []bootstrap.Dest{here}, func(peers []bootstrap.Dest) error { return path.Connect(e.qp, here.PSN, peers[0]) })
}

// element makes element i of the requests: n bytes of the memory.
func (e *end) element(i, at, n int) (addr uint64) {
	elements, addr := verbs.Records[verbs.SGE](e.m, records+512, 3)
	elements[i] = verbs.SGE{Addr: e.mr.Addr() + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
	return addr + uint64(i)*verbs.SizeofSGE
}

// await polls until a request has completed.
func (e *end) await(ctx context.Context) (*verbs.WC, error) {
	wc, _ := verbs.Records[verbs.WC](e.m, records+1024, 1)
	for ctx.Err() == nil {
		if n, err := verbs.Poll(e.cq, wc); n == 1 || err != nil {
			return &wc[0], errors.Join(err, wc[0].Err())
		}
	}
	return nil, ctx.Err()
}

// a writes into memory of b and then sends to it, with one doorbell.
func a(ctx context.Context, w io.Writer, nc net.Conn) error {
	return with(ctx, nc, bootstrap.Client, func(e *end) error {
		said := copy(e.m.Bytes()[text:], "look into your memory")
		left := copy(e.m.Bytes()[text+said:], "written without the help of b")
		wrs, at := verbs.Records[verbs.SendWR](e.m, records+256, 2)
		wrs[0] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: e.element(1, text+said, left), NumSGE: 1, Next: at + verbs.SizeofSendWR}
		wrs[0].SetRDMA(e.there[0], uint32(e.there[1]))
		wrs[1] = verbs.SendWR{Opcode: verbs.WRSend, SGList: e.element(2, text, said), NumSGE: 1, Flags: verbs.SendSignaled}
		fmt.Fprintf(w, "a writes %d bytes and sends %d\n", left, said)
		if _, err := verbs.PostSend(e.qp, at, 2); err != nil {
			return err
		}
		_, err := e.await(ctx) // the SEND, which completes after the WRITE
		return err
	})
}

// b waits for the message and prints the text that a wrote before it. It returns after a has closed the TCP
// connection, because a needs acknowledgements until then.
func b(ctx context.Context, w io.Writer, nc net.Conn) error {
	return with(ctx, nc, bootstrap.Server, func(e *end) error {
		wc, err := e.await(ctx)
		if err != nil {
			return err
		}
		found, _, _ := strings.Cut(string(e.m.Bytes()[written:place]), "\x00")
		fmt.Fprintf(w, "b received %q and finds %q\n", e.m.Bytes()[received:][:wc.ByteLen], found)
		_, err = io.Copy(io.Discard, nc)
		return err
	})
}
