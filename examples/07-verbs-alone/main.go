// Command 07-verbs-alone moves data with package verbs alone, without a runtime.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/bootstrap"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Getenv("VERBENA_DEVICE"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "verbs-alone:", err)
		os.Exit(1)
	}
}

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

// The layout of the memory: areas for data, and one for the records that describe them to the
// device.
const place, writeFrom, writeTo, sendFrom, recvInto, records = 4096, 0, 4096, 8192, 12288, 16384

// run makes all objects, uses them, and closes them in the opposite order.
func run(ctx context.Context, w io.Writer, device string) (err error) {
	dev, err := open(device)
	if err != nil {
		return err
	}
	defer shut(dev, &err)
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	defer shut(pd, &err)
	cq, err := dev.CreateCQ(3, nil, 0, 0) // room for all outstanding requests
	if err != nil {
		return err
	}
	defer shut(cq, &err)
	m, err := verbs.AllocMemory(5 * place)
	if err != nil {
		return err
	}
	defer shut(m, &err)
	mr, err := pd.RegMR(m.Addr(), records, m.Addr(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	defer shut(mr, &err)
	attr := verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	var qps [2]verbs.QP
	for i := range qps {
		if qps[i], err = pd.CreateQP(&attr); err != nil {
			return err
		}
		defer shut(qps[i], &err)
	}
	return talk(ctx, w, qps[0], qps[1], cq, m, mr)
}

// talk writes into memory of b, and then sends to it.
func talk(ctx context.Context, w io.Writer, a, b verbs.QP, cq verbs.CQ, m *verbs.Memory, mr verbs.MR) error {
	sges, sgesAt := verbs.Records[verbs.SGE](m, records, 3)
	sge := func(i, at, n int) uint64 { // makes an element for n bytes of the memory
		sges[i] = verbs.SGE{Addr: mr.Addr() + uint64(at), Length: uint32(n), LKey: mr.LKey()}
		return sgesAt + uint64(i)*verbs.SizeofSGE
	}
	recv, recvAt := verbs.Records[verbs.RecvWR](m, records+256, 1)
	recv[0] = verbs.RecvWR{SGList: sge(0, recvInto, place), NumSGE: 1}
	if err := connect(a, b, recvAt); err != nil {
		return err
	}
	text := m.Bytes()
	n := copy(text[writeFrom:], "written without the help of b")
	k := copy(text[sendFrom:], "look into your memory")
	sends, sendsAt := verbs.Records[verbs.SendWR](m, records+512, 2)
	sends[0] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGList: sge(1, writeFrom, n), NumSGE: 1, Next: sendsAt + verbs.SizeofSendWR}
	sends[0].SetRDMA(mr.Addr()+writeTo, mr.RKey())
	sends[1] = verbs.SendWR{Opcode: verbs.WRSend, SGList: sge(2, sendFrom, k), NumSGE: 1, Flags: verbs.SendSignaled}
	if _, err := verbs.PostSend(a, sendsAt, 2); err != nil {
		return err
	}
	wc, _ := verbs.Records[verbs.WC](m, records+1024, 1)
	for left := 2; left > 0; { // the receive, and the SEND, which completes after the WRITE
		got, err := verbs.Poll(cq, wc)
		if got == 1 {
			err = wc[0].Err()
			left--
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "b received %q and finds %q\n", text[recvInto:][:k], text[writeTo:][:n])
	return nil
}

// connect connects the two. Separate programs would exchange these values, for example over TCP.
func connect(a, b verbs.QP, recvAt uint64) error {
	path, here, err := bootstrap.Path{}.On(a.Context())
	if err != nil {
		return err
	}
	at := [2]bootstrap.Dest{here, here}
	for i, qp := range []verbs.QP{a, b} {
		at[i].QPN, at[i].PSN = qp.Num(), bootstrap.RandomPSN()
		if err := path.Init(qp); err != nil {
			return err
		}
	}
	if _, err := verbs.PostRecv(b, recvAt, 1); err != nil { // before a can send
		return err
	}
	if err := path.Connect(b, at[1].PSN, at[0]); err != nil {
		return err
	}
	return path.Connect(a, at[0].PSN, at[1])
}
