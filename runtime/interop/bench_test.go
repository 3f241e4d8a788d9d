package interop

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/mixed"
	"github.com/verbena-rdma/verbena/internal/must"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// patience is the timeout of one test: under emulation a message takes milliseconds.
const patience = 60 * time.Second

// device is a real device and the program arguments that select it.
type device struct {
	name string
	addr netip.Addr
	gid  string // the index of its GID
}

// bench is the two ends of a test: this package's on one device, the program's on the other.
type bench struct {
	*testing.T
	p            verbs.Provider
	ours, theirs device
	ctx          context.Context
}

// onDevices runs a test of a program with the local end on the first device and the program's on the second, and
// with the software RNIC as the local end. Both ends on one device are left to the conformance suite: what differs
// is the device's own loopback, and the programs take a second each.
func onDevices(t *testing.T, program string, test func(b *bench)) {
	onPairs(t, program, func(a, b string) map[string][2]string {
		return map[string][2]string{"two devices": {a, b}, softRNIC: {"", mixed.Device}}
	}, test)
}

// softRNICPair is the software RNIC as the local end.
func softRNICPair(string, string) map[string][2]string {
	return map[string][2]string{softRNIC: {"", mixed.Device}}
}

// onPairs runs a test of a program with pairs of devices, ours and the program's, made of the two named ones.
func onPairs(t *testing.T, program string, pairs func(a, b string) map[string][2]string, test func(b *bench)) {
	names := os.Getenv("VERBENA_TEST_DEVICES")
	if names == "" {
		t.Skip("VERBENA_TEST_DEVICES names no devices (A,B): in the guest, make test-rxe")
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%v (Debian: ibverbs-utils, rdmacm-utils, perftest)", err)
	}
	a, b, ok := strings.Cut(names, ",")
	if !ok {
		t.Fatalf("VERBENA_TEST_DEVICES is %q, want two names with a comma", names)
	}
	for name, pair := range pairs(a, b) {
		t.Run(name, func(t *testing.T) {
			p := must.Get(ibv.New(ibv.Config{}))(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			t.Cleanup(cancel)
			t.Cleanup(func() { // after everything that the test has opened
				if n := ibv.Live(); n != 0 {
					t.Errorf("%d objects of ibv are left", n)
				}
			})
			b := &bench{T: t, p: p, ctx: ctx}
			if name == softRNIC {
				b.softRNIC()
			} else {
				b.ours = look(t, p, pair[0])
			}
			b.theirs = look(t, p, pair[1])
			test(b)
		})
	}
}

// softRNIC is the name of the tests whose local end is the software RNIC, and whose program's is
// Soft-RoCE.
const softRNIC = "software RNIC"

// softRNIC makes the software RNIC the local end: its socket is at the cable of package mixed.
func (b *bench) softRNIC() {
	b.Helper()
	if strings.Contains(os.Getenv("VERBENA_TEST_DEVICES"), "rxe") {
		b.must(mixed.Lay())
	} else {
		b.Skip("VERBENA_TEST_DEVICES is not Soft-RoCE, which needs a name space of its own")
	}
	p := must.Get(soft.New(soft.Config{
		Fabric:  fabric.New(fabric.Config{}),
		Devices: []soft.DeviceConfig{{Name: "soft", Addr: mixed.SoftAddr, Link: soft.LinkRoCE, MTU: verbs.MTU4096}},
	}))(b.T)
	var open verbs.Context // has the device keep its socket
	b.must(mixed.Within(func() (err error) {
		open, err = p.Open("soft")
		return err
	}))
	b.Cleanup(func() { b.must(open.Close()) })
	b.p, b.ours = p, look(b.T, p, "soft")
}

// look returns the address that a device sends from. A named device that is missing is a failure.
func look(t *testing.T, p verbs.Provider, name string) device {
	t.Helper()
	ctx := must.Get(p.Open(name))(t)
	defer ctx.Close()
	e := must.Get(verbs.ChooseGID(ctx, 1))(t)
	return device{name, e.GID.Addr(), strconv.Itoa(e.Index)}
}

// open returns a runtime on the local device.
func (b *bench) open() *verbena.Runtime {
	b.Helper()
	rt, err := verbena.Open(verbena.Config{Provider: b.p, Device: b.ours.name})
	b.must(err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			b.Errorf("closing the runtime: %v", err)
		}
	})
	return rt
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// freePort returns a free TCP port, for a program that must be given its port.
func (b *bench) freePort() string {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	b.must(err)
	return port
}

// rdmaPorts counts the ports returned by rdmaPort.
var rdmaPorts atomic.Uint32

// rdmaPort returns a free port of the connection manager. Its ports are separate from TCP's, and it
// assigns ephemeral ones from 32768 on, so a free TCP port may be in use there.
func (b *bench) rdmaPort() string { return strconv.Itoa(20_000 + int(rdmaPorts.Add(1))) }

// program is a running program of rdma-core.
type program struct {
	b   *bench
	cmd *exec.Cmd
	// out and complaints are its standard output and error. They belong to the command until ended.
	out, complaints strings.Builder
	err             error // written before ended is closed

	ended chan struct{}
}

// start runs a program. It is killed at the timeout of the test, and the end of its output is
// logged when the test fails.
func (b *bench) start(name string, args ...string) *program {
	b.Helper()
	p := &program{b: b, cmd: exec.CommandContext(b.ctx, name, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.complaints
	p.cmd.WaitDelay = time.Second
	b.must(p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	b.Cleanup(func() {
		if !p.done() {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if b.Failed() {
			b.Logf("%v: %v\n%s\n%s", p.cmd, p.err, tail(p.out.String()), tail(p.complaints.String()))
		}
	})
	return p
}

// tail returns the end of a program's output, enough for a log.
func tail(said string) string { return said[max(0, len(said)-2000):] }

// done reports whether the program has ended.
func (p *program) done() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// succeeded waits for the end of the program, which must be successful, and returns its output.
func (p *program) succeeded() string {
	p.b.Helper()
	<-p.ended // start's context ends it
	if p.err != nil {
		p.b.Fatalf("%v ended with %v", p.cmd, p.err)
	}
	return p.out.String()
}

// listenWait is the time between two attempts to connect to a program. Programs do not report when
// they listen.
const listenWait = 20 * time.Millisecond

// untilListening tries to connect to a program that was just started, until it listens.
func untilListening[T any](p *program, dial func() (T, error), absent func(error) bool) T {
	p.b.Helper()
	for {
		c, err := dial()
		if err == nil {
			return c
		}
		if !absent(err) {
			p.b.Fatalf("connecting to %v: %v", p.cmd, err)
		}
		select {
		case <-p.ended:
			p.b.Fatalf("%v ended before it was connected to: %v", p.cmd, p.err)
		case <-p.b.ctx.Done():
			p.b.Fatalf("connecting to %v: %v, last with %v", p.cmd, p.b.ctx.Err(), err)
		case <-time.After(listenWait):
		}
	}
}

// nobodyListens reports whether err is the connection manager's rejection for a port without a
// listener.
func nobodyListens(err error) bool {
	e, ok := errors.AsType[*verbena.RejectError](err)
	return ok && e.Reason == verbs.RejInvalidServiceID
}
