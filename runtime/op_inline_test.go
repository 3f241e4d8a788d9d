package runtime

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rule: a SEND or WRITE of up to Options.Inline bytes carries these bytes in the work request,
// whichever call starts it. So the device does not use the key of the local memory. The device does
// use the key if the data is longer, if the memory is zero-based or on-demand, or if Options.Inline
// is -1.
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
		"DoAll": func(ctx context.Context, c *Conn, local Slice, remote Remote) error {
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
		"a list of one": func(ctx context.Context, c *Conn, local Slice, remote Remote) error {
			return awaited(ctx)(c.Start(ctx, new(WriteVOp([]Slice{local}, remote))))
		},
	}
	for name, way := range ways {
		for i, c := range []struct {
			o      Options
			n      int
			access verbs.AccessFlags
			good   bool
		}{
			{Options{Raw: true}, DefaultInline, 0, true}, {Options{Raw: true}, DefaultInline + 1, 0, false},
			{Options{Raw: true}, 1, 0, true},
			{Options{}, 8, 0, true}, {Options{Inline: 8, Raw: true}, 8, 0, true}, {Options{Inline: 8, Raw: true}, 9, 0, false},
			{Options{Inline: -1, Raw: true}, 1, 0, false}, {Options{Inline: -1}, 1, 0, false},
			{Options{Raw: true}, 8, verbs.AccessZeroBased, false}, {Options{}, 8, verbs.AccessZeroBased, false},
			{Options{Raw: true}, 8, verbs.AccessOnDemand, false},
		} {
			if onDevice && name != "Write" && i > 1 {
				break // each connection takes a device some 0.2 s
			}
			a, b := connected(t, Config{Conn: c.o})
			far := must.Get(b.rt.NewRegion(size, allAccess))(t)
			own, err := a.rt.NewRegion(size, verbs.AccessLocalWrite|c.access)
			if c.access != 0 && errors.Is(err, verbs.ErrNotSupported) {
				continue // this device has no such memory
			} else if err != nil {
				t.Fatal(err)
			}
			if c.o.Raw {
				f := must.Get(b.PostRecv(must.Get(far.Slice(0, size))(t)))(t)
				defer f.Discard()
			}
			local := must.Get(own.Slice(0, c.n))(t)
			local.lkey ^= 0xffff00 // makes the key invalid
			err = way(testContext(t), a, local, must.Get(far.Remote(0, size))(t))
			// The status is LOC_PROT_ERR, or WR_FLUSH_ERR on Soft-RoCE (verbs/ibv, rxeDeviations).
			var refused *verbs.WCError
			if (err == nil) != c.good || err != nil && !errors.As(err, &refused) {
				t.Errorf("%s of %d bytes, Inline %d, raw %v: %v; carried: %v", name, c.n, c.o.Inline, c.o.Raw, err, c.good)
			}
		}
	}
}

// The function awaited returns a function that takes the results of a call, a future and an error.
// That function returns the error if the call has failed. Otherwise it awaits the future.
func awaited(ctx context.Context) func(Future, error) error {
	return func(f Future, err error) error {
		if err == nil {
			_, err = f.Await(ctx)
		}
		return err
	}
}

// Rule: inline bytes arrive intact even if their list contains a FLUSH. Such a list is posted with
// the extended calls (ibv_wr_post(3)). (In these calls, Soft-RoCE's library takes inline bytes for
// scatter-gather elements unless the request has the flag INLINE.)
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
			t.Fatalf("operation %d: %v", i, err)
		}
	}
	m := must.Get(b.RecvWait(ctx))(t)
	if got := string(m.Data); got != text {
		t.Errorf("sent %q, received %q", text, got)
	}
	if err := m.Release(); err != nil {
		t.Fatal(err)
	}
	if got := string(far.Bytes()[:len(text)]); got != text {
		t.Errorf("written %q, there is %q", text, got)
	}
	mustClose(t, own, far)
}
