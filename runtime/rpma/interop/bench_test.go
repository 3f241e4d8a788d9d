package interop

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mixed"
	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
	"github.com/verbena-rdma/verbena/verbs/verbstest/altered"
)

// patience is the timeout of one test: under emulation a message takes milliseconds.
const patience = 60 * time.Second

// form is what the devices of both ends execute.
type form string

// The forms, as arguments of the program.
const (
	native form = "native" // what they have
	plain  form = "plain"  // neither FLUSH nor ATOMIC_WRITE: READs and fenced WRITEs take their places
)

// device is a device and the address that it sends from.
type device struct {
	name string
	addr netip.Addr
}

// bench is the two ends of a test: ours on one device, the program's on the other.
type bench struct {
	*testing.T
	ctx          context.Context
	program      string // its path
	form         form
	order        order
	p            verbs.Provider // of ours
	ours, theirs device
}

// softDevice is the name of the device of the software RNIC.
const softDevice = "soft"

// onBenches runs a test in each of the forms, with the order for each, with our end on the first device and the
// program's on the second, and with the software RNIC as our end. The latter has no native form: the packets of Soft-RoCE's FLUSH have a wrong
// ICRC (flushDeviation of verbs/ibv).
func onBenches(t *testing.T, orders map[form]order, test func(b *bench)) {
	names := os.Getenv("VERBENA_TEST_DEVICES")
	if names == "" {
		t.Skip("VERBENA_TEST_DEVICES names no devices (A,B): in the guest, make test-rxe")
	}
	first, second, ok := strings.Cut(names, ",")
	if !ok {
		t.Fatalf("VERBENA_TEST_DEVICES is %q, want two names with a comma", names)
	}
	program := compiled(t)
	for name, pair := range map[string][2]string{"two devices": {first, second}, "software RNIC": {softDevice, mixed.Device}} {
		for f, o := range orders {
			if pair[0] == softDevice && f == native {
				continue
			}
			t.Run(name+"/"+string(f), func(t *testing.T) {
				if pair[0] == softDevice && !strings.HasPrefix(first, "rxe") {
					t.Skip("VERBENA_TEST_DEVICES is not Soft-RoCE, which needs a name space of its own")
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				t.Cleanup(cancel)
				b := &bench{T: t, ctx: ctx, program: program, form: f, order: o}
				p := must.Get(ibv.New(ibv.Config{}))(t)
				if b.p = p; pair[0] == softDevice {
					b.p = softRNIC(t)
				}
				if f == plain {
					b.p = altered.Provider{Provider: b.p, Change: altered.WithoutExtensions}
				}
				b.ours, b.theirs = look(t, b.p, pair[0]), look(t, p, pair[1])
				test(b)
			})
		}
	}
}

// softRNIC makes a software RNIC at the cable of package mixed, on whose other end is Soft-RoCE.
func softRNIC(t *testing.T) verbs.Provider {
	t.Helper()
	must.Do(t, mixed.Lay())
	p := must.Get(soft.New(soft.Config{
		Fabric:  fabric.New(fabric.Config{}),
		Devices: []soft.DeviceConfig{{Name: softDevice, Addr: mixed.SoftAddr, Link: soft.LinkRoCE, MTU: verbs.MTU4096}},
	}))(t)
	var open verbs.Context // has the device keep its socket
	must.Do(t, mixed.Within(func() (err error) {
		open, err = p.Open(softDevice)
		return err
	}))
	t.Cleanup(func() { must.Do(t, open.Close()) })
	return p
}

// look returns a device, which must be there.
func look(t *testing.T, p verbs.Provider, name string) device {
	t.Helper()
	ctx := must.Get(p.Open(name))(t)
	defer ctx.Close()
	return device{name, must.Get(verbs.ChooseGID(ctx, 1))(t).GID.Addr()}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// closes closes an object at the end of the test.
func (b *bench) closes(what interface{ Close(context.Context) error }) {
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := what.Close(ctx); err != nil {
			b.Errorf("closing a %T: %v", what, err)
		}
	})
}
