package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: if a SEND or WRITE has at most Options.Inline bytes, its work request carries the bytes inline,
// whichever call starts the operation. So the device does not use the lkey of the local memory. If the
// data is longer, if the memory is zero-based or on-demand, or if Options.Inline is -1, the data is not
// sent inline, and the device uses the lkey.
func TestShortRequestsCarryTheirBytes(t *testing.T) {
	const size = 2 * DefaultInline
	send := func(ctx context.Context, c *Conn, local Slice, _ Remote) error {
		return awaited(ctx)(c.Send(ctx, local))
	}
	write := func(ctx context.Context, c *Conn, local Slice, remote Remote) error {
		return awaited(ctx)(c.Write(ctx, local, remote))
	}
	ways := map[string]func(context.Context, *Conn, Slice, Remote) error{
		"Write": write,
		"Send":  send,
		"Do": func(ctx context.Context, c *Conn, local Slice, remote Remote) error {
			_, err := c.Do(ctx, new(WriteOp(local, remote)))
			return err
		},
		"Batch.StartAll": func(ctx context.Context, c *Conn, local Slice, remote Remote) error {
			fs := make([]Future, 1)
			if _, err := c.Batch().StartAll(ctx, []Op{WriteOp(local, remote)}, fs); err != nil {
				return err
			}
			return awaited(ctx)(fs[0], nil)
		},
		"StartFromSink": func(ctx context.Context, c *Conn, local Slice, remote Remote) error {
			op, ended := WriteOp(local, remote), make(chan error, 1)
			first := turnSink(func(t SinkContext, _ Result, err error) {
				if err == nil {
					err = c.StartFromSink(t, &op, turnSink(func(_ SinkContext, _ Result, err error) { ended <- err }), 0)
				}
				if err != nil {
					ended <- err
				}
			})
			none := WriteOp(Slice{}, remote)
			if err := c.TryStartTo(&none, first, 0); err != nil {
				return err
			}
			c.Batch().Flush()
			return <-ended
		},
		"WriteVOp of one piece": func(ctx context.Context, c *Conn, local Slice, remote Remote) error {
			return awaited(ctx)(c.Start(ctx, new(WriteVOp([]Slice{local}, remote))))
		},
	}
	for name, way := range ways {
		for i, c := range []struct {
			o      Options
			n      int
			access verbs.AccessFlags
			inline bool // the data is expected to be inline, so the operation succeeds with an invalid lkey
		}{
			{Options{Raw: true}, DefaultInline, 0, true}, {Options{Raw: true}, DefaultInline + 1, 0, false},
			{Options{Raw: true}, 1, 0, true},
			{Options{}, 8, 0, true}, {Options{Inline: 8, Raw: true}, 8, 0, true}, {Options{Inline: 8, Raw: true}, 9, 0, false},
			{Options{Inline: -1, Raw: true}, 1, 0, false}, {Options{Inline: -1}, 1, 0, false},
			{Options{Raw: true}, 8, verbs.AccessZeroBased, false}, {Options{}, 8, verbs.AccessZeroBased, false},
			{Options{Raw: true}, 8, verbs.AccessOnDemand, false},
		} {
			if onDevice && name != "Write" && i > 1 {
				break // to save time: on a device of the system each connection takes about 0.2 s
			}
			a, b := connected(t, Config{Conn: c.o})
			far := must.Get(b.rt.NewRegion(size, allAccess))(t)
			own, err := a.rt.NewRegion(size, verbs.AccessLocalWrite|c.access)
			if c.access != 0 && errors.Is(err, verbs.ErrNotSupported) {
				continue // this device does not support zero-based or on-demand memory
			} else if err != nil {
				t.Fatal(err)
			}
			if c.o.Raw {
				f := must.Get(b.PostRecv(must.Get(far.Slice(0, size))(t)))(t)
				defer f.Discard()
			}
			local := must.Get(own.Slice(0, c.n))(t)
			local.lkey ^= 0xffff00 // makes the lkey invalid
			err = way(testContext(t), a, local, must.Get(far.Remote(0, size))(t))
			// If the device uses the invalid lkey, the completion has the status LOC_PROT_ERR, or
			// WR_FLUSH_ERR on Soft-RoCE (verbs/ibv, rxeDeviations).
			var refused *verbs.WCError
			if (err == nil) != c.inline || err != nil && !errors.As(err, &refused) {
				t.Errorf("%s of %d bytes with an invalid lkey, Options.Inline %d, raw %v: error %v; want success: %v, otherwise a *verbs.WCError",
					name, c.n, c.o.Inline, c.o.Raw, err, c.inline)
			}
		}
	}
}

// awaited returns a function f. The arguments of f are the two results of a call that
// starts an operation: a future and an error. If the call has failed, f returns the error. Otherwise f
// awaits the future and returns its error.
func awaited(ctx context.Context) func(Future, error) error {
	return func(f Future, err error) error {
		if err == nil {
			_, err = f.Await(ctx)
		}
		return err
	}
}

// Rule: if a list of work requests contains a FLUSH and requests with inline bytes, the inline bytes
// arrive intact. The provider ibv posts a list with a FLUSH by the extended calls (ibv_wr_post(3)). In
// these calls, Soft-RoCE's library takes inline bytes for scatter-gather elements unless the request
// has the flag INLINE.
func TestInlineBytesBesideAFlushArrive(t *testing.T) { onBeds(t, inlineBesideAFlush) }

func inlineBesideAFlush(t *testing.T, d bed) {
	a, b := d.connected(t, Config{})
	ctx := testContext(t)
	far := must.Get(b.rt.NewRegion(8, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessFlushGlobal))(t)
	own := must.Get(a.rt.NewRegion(8, verbs.AccessLocalWrite))(t)
	const text = "short"
	copy(own.Bytes(), text)
	at := must.Get(far.Remote(0, 8))(t)
	fs := make([]Future, 3)
	ops := []Op{SendBytesOp([]byte(text)), WriteOp(must.Get(own.Slice(0, 8))(t), at), FlushOp(at, verbs.FlushGlobal)}
	if _, err := a.Batch().StartAll(ctx, ops, fs); err != nil {
		t.Fatal(err)
	}
	for i, f := range fs {
		if _, err := f.Await(ctx); err != nil {
			t.Fatalf("awaiting operation %d: %v", i, err)
		}
	}
	m := must.Get(b.RecvWait(ctx))(t)
	if got := string(m.Data); got != text {
		t.Errorf("the SEND delivered %q, want %q", got, text)
	}
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	if got := string(far.Bytes()[:len(text)]); got != text {
		t.Errorf("the WRITE left %q in the peer's memory, want %q", got, text)
	}
	mustClose(t, own, far)
}
