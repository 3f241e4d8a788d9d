package reactor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/reactor"
	"github.com/verbena-rdma/verbena/verbs"
)

// limited is a device whose attributes the test has changed. QueryDevice calls limited.change to change
// them.
type limited struct {
	verbs.Context
	change func(*verbs.DeviceAttr)
}

func (d limited) QueryDevice() (verbs.DeviceAttr, error) {
	a, err := d.Context.QueryDevice()
	d.change(&a)
	return a, err
}

// onLimited calls test with a queue of the given type on a limited device. No pass runs, so accepted
// requests are not posted.
func onLimited(t *testing.T, typ verbs.QPType, change func(*verbs.DeviceAttr), test func(q *reactor.Queue)) {
	t.Helper()
	l := newLone(t, reactor.Config{Stepped: true}, func(c verbs.Context) verbs.Context { return limited{c, change} })
	defer l.close(t)
	q := must.Get(l.r.Prepare(reactor.QueueConfig{PD: l.pd, Type: typ, Windows: typ != verbs.QPTUD}))(t)
	l.do(t, func() {
		must.Do(t, q.Admit())
		init := q.InitAttr()
		q.Bind(must.Get(l.pd.CreateQP(init))(t), init.Cap)
		test(q)
		must.Do(t, q.QP().Close())
		must.Do(t, q.Release(errOver))
	})
}

// submit submits s with the given elements and returns the error of Submit.
func submit(q *reactor.Queue, s reactor.Send, sges ...verbs.SGE) error {
	s.Sink = make(tally, 1)
	_, err := q.Submit(context.Background(), &s, &reactor.Payload{SGEs: sges}, reactor.NonBlock)
	return err
}

// Rule: a queue refuses the opcodes that its type does not have, even if the device has them.
func TestOpcodesOfAnotherTypeAreRefused(t *testing.T) {
	all := func(a *verbs.DeviceAttr) { a.Opcodes = ^verbs.OpcodeSet(0) }
	onLimited(t, verbs.QPTUC, all, func(q *reactor.Queue) {
		for _, op := range []verbs.WROpcode{verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd, verbs.WRAtomicWrite} {
			if err := submit(q, reactor.Send{Opcode: op}); !errors.Is(err, reactor.ErrRequest) {
				t.Errorf("Submit of %v returned %v, want ErrRequest", op, err)
			}
		}
		must.Do(t, submit(q, reactor.Send{Opcode: verbs.WRRDMAWrite}))
	})
}

// Rule: a queue refuses an opcode that the device lacks. It also refuses a READ with more elements than
// DeviceAttr.MaxSGERead.
func TestWhatTheDeviceLacksIsRefused(t *testing.T) {
	few := func(a *verbs.DeviceAttr) { a.Opcodes, a.MaxSGERead = 0, 1 }
	onLimited(t, verbs.QPTRC, few, func(q *reactor.Queue) {
		for _, op := range []verbs.WROpcode{verbs.WRSendWithInv, verbs.WRAtomicWrite, verbs.WRLocalInv} {
			if err := submit(q, reactor.Send{Opcode: op}); !errors.Is(err, reactor.ErrRequest) || !errors.Is(err, verbs.ErrNotSupported) {
				t.Errorf("Submit of %v returned %v, want ErrRequest that wraps ErrNotSupported", op, err)
			}
		}
		two := make([]verbs.SGE, 2)
		if err := submit(q, reactor.Send{Opcode: verbs.WRRDMARead}, two...); !errors.Is(err, reactor.ErrRequest) {
			t.Errorf("Submit of a READ into 2 elements returned %v, want ErrRequest", err)
		}
		must.Do(t, submit(q, reactor.Send{Opcode: verbs.WRRDMARead}, two[:1]...))
		must.Do(t, submit(q, reactor.Send{Opcode: verbs.WRRDMAWrite}, two...))
	})
}

// Rule: Submit accepts a FLUSH only with at least one placement, with known placements and
// selectivities, and with a length below 2^32.
func TestFlushesAreChecked(t *testing.T) {
	all := func(a *verbs.DeviceAttr) { a.Opcodes = ^verbs.OpcodeSet(0) }
	onLimited(t, verbs.QPTRC, all, func(q *reactor.Queue) {
		for _, c := range []struct {
			flush reactor.Flush
			good  bool
		}{
			{reactor.Flush{Placement: verbs.FlushGlobal}, true},
			{reactor.Flush{Placement: verbs.FlushGlobal | verbs.FlushPersistent, Selectivity: verbs.FlushMR}, true},
			{reactor.Flush{Placement: verbs.FlushPersistent, Length: 1<<32 - 1}, true},
			{reactor.Flush{}, false},
			{reactor.Flush{Placement: verbs.FlushGlobal | 1<<2}, false},
			{reactor.Flush{Placement: verbs.FlushGlobal, Selectivity: verbs.FlushMR + 1}, false},
			{reactor.Flush{Placement: verbs.FlushGlobal, Length: 1 << 32}, false},
		} {
			if err := submit(q, reactor.Send{Opcode: verbs.WRFlush, Flush: c.flush}); c.good != (err == nil) || !c.good && !errors.Is(err, reactor.ErrRequest) {
				t.Errorf("Submit of a FLUSH with %+v, valid = %t, returned %v; want nil if valid, and otherwise ErrRequest", c.flush, c.good, err)
			}
		}
	})
}
