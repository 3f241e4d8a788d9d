package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if a SEND has immediate data, the received message has the bytes and the immediate data. This
// holds on managed connections and on raw connections.
func TestAMessageCarriesImmediateData(t *testing.T) {
	onBeds(t, func(t *testing.T, bd bed) {
		for _, raw := range []bool{false, true} {
			a, b := bd.connected(t, Config{Conn: Options{Raw: raw}})
			ctx := testContext(t)
			src, into := bufferOf(t, a.rt, []byte("slice")), bufferOf(t, b.rt, make([]byte, 16))
			for want, op := range map[string]Op{"slice": SendOp(src.Slice()), "bytes": SendBytesOp([]byte("bytes")), "pieces": SendVOp([]Slice{bufferOf(t, a.rt, []byte("pie")).Slice(), bufferOf(t, a.rt, []byte("ces")).Slice()})} {
				var f Future
				if raw {
					f = must.Get(b.PostRecv(into.Slice()))(t)
				}
				must.Get(a.Do(ctx, new(op.Imm(0x01020304))))(t)
				if raw {
					r := must.Get(f.Await(ctx))(t)
					if got := string(into.Bytes()[:r.Bytes]); got != want || r.Imm != 0x01020304 || r.Flags&verbs.WCWithImm == 0 {
						t.Errorf("raw connection: received %q, immediate 0x%x, flags %v; want %q, immediate 0x01020304 and the flag WITH_IMM",
							got, r.Imm, r.Flags, want)
					}
					continue
				}
				m := must.Get(b.RecvWait(ctx))(t)
				if string(m.Data) != want || !m.HasImm || m.Imm != 0x01020304 || m.Written != 0 {
					t.Errorf("managed connection: received %q, immediate 0x%x, HasImm %v, Written %d; want %q, 0x01020304, true, 0",
						m.Data, m.Imm, m.HasImm, m.Written, want)
				}
				if err := m.Release(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Rule: a fenced operation begins only after all earlier READs of its connection have ended. So a
// fenced WRITE sends the data that these READs have stored.
func TestAFencedWriteFindsWhatWasRead(t *testing.T) {
	const size = 64 << 10
	a, b := connected(t, Config{Conn: Options{Inline: -1}})
	ctx := testContext(t)
	far, own := must.Get(b.rt.NewRegion(2*size, allAccess))(t), must.Get(a.rt.NewRegion(size, verbs.AccessLocalWrite))(t)
	from, to := must.Get(far.Remote(0, size))(t), must.Get(far.Remote(size, size))(t)
	local := must.Get(own.Slice(0, size))(t)
	for i := range byte(20) {
		for k := range size {
			far.Bytes()[k] = i + 1
		}
		ops := []Op{ReadOp(local, from), WriteOp(local, to).Fence()}
		if i%2 == 1 {
			ops[1] = WriteVOp([]Slice{local, {}}, to).Fence()
		}
		if n, err := a.DoAll(ctx, ops, nil); err != nil {
			t.Fatalf("round %d: DoAll failed at operation %d: %v", i, n, err)
		}
		if got := far.Bytes()[2*size-1]; got != i+1 {
			t.Fatalf("round %d: the WRITE sent the byte %d, want %d, which the READ stored before", i, got, i+1)
		}
	}
}

// solicitedOnly is a provider whose devices arm completion queues for solicited events only. So they
// raise completion events only for solicited messages and for errors.
type solicitedOnly struct{ verbs.Provider }

func (p solicitedOnly) Open(name string) (verbs.Context, error) {
	c, err := p.Provider.Open(name)
	return solicitedContext{c}, err
}

type solicitedContext struct{ verbs.Context }

func (c solicitedContext) Execute(t *verbs.IOBatch) error {
	for i := range t.Arms {
		t.Arms[i].Solicited = true
	}
	return c.Context.Execute(t)
}

// Rule: if an operation has the modifier Solicited, its message wakes a peer whose completion queue is
// armed for solicited events only.
func TestASolicitedMessageWakesThePeer(t *testing.T) {
	notOnDevice(t, "the test opens devices by the names of the software RNIC's devices")
	onBeds(t, func(t *testing.T, bd bed) {
		p := solicitedOnly{bd.open(t, Config{}, 1).provider}
		server := bd.open(t, Config{Provider: p, NoCallerDriving: true, Spin: -1}, 1)
		client := bd.open(t, Config{}, 0)
		ln := must.Get(server.Listen(":0"))(t)
		accepted := must.Get(ln.AcceptAsync())(t)
		ctx := testContext(t)
		a := must.Get(client.Dial(ctx, ln.Addr().String()))(t)
		b := must.Get(accepted.Await(ctx))(t)
		src := bufferOf(t, client, []byte("slice"))
		far := must.Get(server.NewRegion(8, allAccess))(t)
		// If a message does not wake the peer, the peer finds the message at its next recheck, up to
		// DefaultRecheck later. The test sends 20 messages, which could then take 20 × DefaultRecheck,
		// four times the limit of ctx.
		ctx, cancel := context.WithTimeout(ctx, 5*reactor.DefaultRecheck)
		defer cancel()
		ops := map[string]Op{
			"a SEND":                   SendOp(src.Slice()).Solicited(),
			"a SEND of bytes":          SendBytesOp([]byte("bytes")).Solicited(),
			"a WRITE with immediate":   WriteOp(must.Get(src.Slice().Sub(0, 4))(t), must.Get(far.Remote(0, 8))(t)).Solicited().Imm(1),
			"a SEND of two pieces":     SendVOp([]Slice{src.Slice(), src.Slice()}).Solicited(),
			"a SEND with an immediate": SendOp(src.Slice()).Imm(1).Solicited(),
		}
		for range 4 {
			for name, op := range ops {
				f := b.Recv()
				// When Do returns, the reactor knows that f waits for a message, and the loop goes to sleep.
				if err := b.sh.r.Do(ctx, func() {}); err != nil {
					t.Fatal(err)
				}
				must.Get(a.Do(ctx, &op))(t)
				m, err := f.Await(ctx)
				if err != nil {
					t.Fatalf("receiving the message of %s: %v", name, err)
				}
				if err := m.Release(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Rule: if an operation has a modifier (Imm, Fence, Solicited) that its kind cannot have, every call
// that starts operations refuses it with ErrRequest.
func TestModifiersThatDoNotFit(t *testing.T) {
	a, b := connected(t, Config{})
	far, own := must.Get(b.rt.NewRegion(8, allAccess))(t), must.Get(a.rt.NewRegion(8, allAccess))(t)
	remote, local := must.Get(far.Remote(0, 8))(t), must.Get(own.Slice(0, 8))(t)
	for name, op := range map[string]Op{
		"a READ with immediate data":                ReadOp(local, remote).Imm(1),
		"an atomic with immediate data":             FetchAndAddOp(remote, 1).Imm(1),
		"a receive with immediate data":             PostRecvOp(local).Imm(1),
		"an invalidating SEND with immediate data":  SendInvalidateOp(local, remote).Imm(1),
		"a fenced receive":                          PostRecvOp(local).Fence(),
		"a solicited READ":                          ReadOp(local, remote).Solicited(),
		"a solicited FLUSH":                         FlushOp(remote, verbs.FlushGlobal).Solicited(),
		"a solicited WRITE":                         WriteOp(local, remote).Solicited(),
		"a solicited, fenced WRITE":                 WriteOp(local, remote).Solicited().Fence(),
		"a fenced READ with immediate data":         ReadOp(local, remote).Imm(1).Fence(),
		"the zero Op":                               {},
		"the zero Op with Imm, Fence and Solicited": Op{}.Imm(1).Fence().Solicited(),
	} {
		sink := make(mailSink, 1)
		_, started := a.Start(testContext(t), &op)
		_, done := a.Do(testContext(t), &op)
		for way, err := range map[string]error{
			"Start": started, "Do": done, "StartTo": a.StartTo(testContext(t), &op, sink, 0), "TryStartTo": a.TryStartTo(&op, sink, 0),
		} {
			if !errors.Is(err, reactor.ErrRequest) {
				t.Errorf("%s: %s returned %v, want %v", name, way, err, reactor.ErrRequest)
			}
		}
	}
}
