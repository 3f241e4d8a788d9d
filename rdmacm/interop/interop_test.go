package interop

import (
	"context"
	"errors"
	"maps"
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
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
	"github.com/verbena-rdma/verbena/verbs/soft/fabric"
)

// patience is the timeout of one test: under emulation a message takes milliseconds.
const patience = 60 * time.Second

// side is one of two programs that talk to each other.
type side struct {
	c           string // the C program
	translation program
	// args are the arguments of both, for this side's and the other's address and a port that no other test has.
	args func(here, there netip.Addr, port string) string
}

// talks are the pairs of programs. The passive side begins.
var talks = map[string]struct{ passive, active side }{
	"rdma_client": {
		side{"rdma_server", rdmaServer, func(here, _ netip.Addr, port string) string { return "-s " + here.String() + " -p " + port }},
		side{"rdma_client", rdmaClient, func(_, there netip.Addr, port string) string { return "-s " + there.String() + " -p " + port }},
	},
	"udaddy": {
		side{"udaddy", udaddy, func(here, _ netip.Addr, _ string) string { return "-S 1000 -b " + here.String() }},
		side{"udaddy", udaddy, func(here, there netip.Addr, _ string) string {
			return "-S 1000 -b " + here.String() + " -s " + there.String()
		}},
	},
	"mckey": {
		side{"mckey", mckey, func(here, _ netip.Addr, _ string) string { return "-b " + here.String() + " -m " + group }},
		side{"mckey", mckey, func(here, _ netip.Addr, _ string) string { return "-s -o -b " + here.String() + " -m " + group }},
	},
}

// byGID are pairs of programs with addresses of InfiniBand, which Linux has on ports of InfiniBand alone: the C programs
// do not run on Soft-RoCE so.
var byGID = map[string]struct{ passive, active side }{
	"udaddy -f gid": {
		side{"udaddy", udaddy, func(here, _ netip.Addr, _ string) string { return "-S 1000 -f gid -b " + gid(here) }},
		side{"udaddy", udaddy, func(here, there netip.Addr, _ string) string {
			return "-S 1000 -f gid -b " + gid(here) + " -s " + gid(there)
		}},
	},
	"mckey -M": {
		side{"mckey", mckey, func(here, _ netip.Addr, _ string) string { return "-b " + here.String() + " -M " + groupGID }},
		side{"mckey", mckey, func(here, _ netip.Addr, _ string) string { return "-s -o -b " + here.String() + " -M " + groupGID }},
	},
}

// gid returns the GID of an address.
func gid(a netip.Addr) string { return netip.AddrFrom16(a.As16()).String() }

// groupGID is a multicast group of InfiniBand: transient, of this subnet.
const groupGID = "ff12:401b:ffff::7"

// Further arguments.
var (
	// two connections, where the passive side is a translation. A C program may begin to listen
	// between the requests of the two connections.
	twoConnections = map[string]string{"udaddy": " -c 2", "mckey": " -c 2"}
	// many has the sender mckey send more than the receiver takes: it destroys its queue pair without waiting, and
	// Soft-RoCE loses what it has not sent by then. Two of these programs fail like that with each other, too.
	many = map[string]string{"mckey": " -C 4000"}
)

// group is the multicast group of the tests.
const group = "239.7.7.9"

// Ports of the connection manager that no other test has; ephemeral ones are from 32768 on.
var ports atomic.Uint32

func newPort() string { return strconv.Itoa(21_000 + int(ports.Add(1))) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func library(t *testing.T, p verbs.Provider) *rdmacm.Library {
	t.Helper()
	lib := must.Get(rdmacm.Open(rdmacm.Config{Provider: p}))(t)
	t.Cleanup(func() { must.Do(t, lib.Close()) })
	return lib
}

// started is a program of either kind that runs.
type started struct {
	ready chan struct{} // closed when the peer may begin; for C programs nil: they do not say
	done  chan struct{} // closed when it has ended
	err   error         // written before that
}

// wait waits until the program has ended, which must be with success.
func (s *started) wait(t *testing.T, what string) {
	t.Helper()
	<-s.done // its context ends it
	if s.err != nil {
		t.Errorf("%s: %v", what, s.err)
	}
}

// translated starts a translation.
func translated(ctx context.Context, lib *rdmacm.Library, run program, args string) *started {
	s := &started{ready: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = run(ctx, lib, func() { close(s.ready) }, strings.Fields(args)...)
	}()
	return s
}

// original starts a C program. Its output is logged when the test fails.
func original(ctx context.Context, t *testing.T, name, args string) *started {
	t.Helper()
	s := &started{done: make(chan struct{})}
	cmd := exec.CommandContext(ctx, name, strings.Fields(args)...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	must.Do(t, cmd.Start())
	go func() {
		defer close(s.done)
		s.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		if <-s.done; t.Failed() {
			t.Logf("%v: %v\n%s", cmd, s.err, said.String())
		}
	})
	return s
}

// Rule: the translations talk to each other on the software RNIC.
func TestTranslations(t *testing.T) {
	all := maps.Clone(talks)
	maps.Copy(all, byGID)
	for name, talk := range all {
		t.Run(name, func(t *testing.T) {
			addrs := [2]netip.Addr{netip.MustParseAddr("10.7.0.1"), netip.MustParseAddr("10.7.0.2")}
			p := must.Get(soft.New(soft.Config{
				Fabric:  fabric.New(fabric.Config{}),
				Devices: []soft.DeviceConfig{{Name: "a", Addr: addrs[0]}, {Name: "b", Addr: addrs[1]}},
			}))(t)
			ctx, port, more := testContext(t), newPort(), twoConnections[talk.passive.c]
			if talk.passive.c == "mckey" {
				more += " -pause 1ms" // the receiver has joined
			}
			passive := translated(ctx, library(t, p), talk.passive.translation, talk.passive.args(addrs[1], addrs[0], port)+more)
			select {
			case <-passive.ready:
			case <-passive.done:
			}
			active := translated(ctx, library(t, p), talk.active.translation, talk.active.args(addrs[0], addrs[1], port)+more)
			active.wait(t, "the active side")
			passive.wait(t, "the passive side")
		})
	}
}

// place is where a translation runs and a C program that talks to it.
type place struct {
	lib          *rdmacm.Library
	ours, theirs netip.Addr
}

// eachPlace runs a test of each pair of programs with the translation on the first device and the C program on the
// second, and with the translation on the software RNIC.
func eachPlace(t *testing.T, test func(ctx context.Context, t *testing.T, name string, at place)) {
	names := os.Getenv("VERBENA_TEST_DEVICES")
	if names == "" {
		t.Skip("VERBENA_TEST_DEVICES names no devices (A,B): in the guest, make test-rxe")
	}
	a, b, ok := strings.Cut(names, ",")
	if !ok {
		t.Fatalf("VERBENA_TEST_DEVICES is %q, want two names with a comma", names)
	}
	for name, talk := range talks {
		t.Run(name, func(t *testing.T) {
			for _, s := range []side{talk.passive, talk.active} {
				if _, err := exec.LookPath(s.c); err != nil {
					t.Skipf("%v (Debian: rdmacm-utils)", err)
				}
			}
			devices := must.Get(ibv.New(ibv.Config{}))(t)
			t.Run("two devices", func(t *testing.T) {
				test(testContext(t), t, name, place{library(t, devices), address(t, devices, a), address(t, devices, b)})
			})
			if name == "mckey" {
				return // the software RNIC's multicast groups do not reach beyond its process
			}
			t.Run("software RNIC", func(t *testing.T) {
				if !strings.Contains(names, "rxe") {
					t.Skip("VERBENA_TEST_DEVICES is not Soft-RoCE, which needs a name space of its own")
				}
				p := onCable(t)
				test(testContext(t), t, name, place{library(t, p), mixed.SoftAddr, mixed.DeviceAddr})
			})
		})
	}
}

// onCable returns a software RNIC at the cable of package mixed.
func onCable(t *testing.T) verbs.Provider {
	t.Helper()
	must.Do(t, mixed.Lay())
	p := must.Get(soft.New(soft.Config{
		Fabric:  fabric.New(fabric.Config{}),
		Devices: []soft.DeviceConfig{{Name: "soft", Addr: mixed.SoftAddr, Link: soft.LinkRoCE, MTU: verbs.MTU4096}},
	}))(t)
	var open verbs.Context // has the device keep its socket
	must.Do(t, mixed.Within(func() (err error) {
		open, err = p.Open("soft")
		return err
	}))
	t.Cleanup(func() { must.Do(t, open.Close()) })
	return p
}

// address returns the address that a device sends from. A named device that is missing is a failure.
func address(t *testing.T, p verbs.Provider, name string) netip.Addr {
	t.Helper()
	ctx := must.Get(p.Open(name))(t)
	defer ctx.Close()
	return must.Get(verbs.ChooseGID(ctx, port))(t).GID.Addr()
}

// Rule: the C programs that begin talk to a translation that waits.
func TestCActive(t *testing.T) {
	eachPlace(t, func(ctx context.Context, t *testing.T, name string, at place) {
		talk, port := talks[name], newPort()
		ours := translated(ctx, at.lib, talk.passive.translation, talk.passive.args(at.ours, at.theirs, port)+twoConnections[name])
		select {
		case <-ours.ready:
			original(ctx, t, talk.active.c, talk.active.args(at.theirs, at.ours, port)+twoConnections[name]+many[name]).wait(t, talk.active.c)
		case <-ours.done:
		}
		ours.wait(t, "the translation")
	})
}

// listenWait is the time between two attempts to connect to a C program, which does not say when it listens.
const listenWait = 20 * time.Millisecond

// Rule: the translations that begin talk to a C program that waits.
func TestCPassive(t *testing.T) {
	eachPlace(t, func(ctx context.Context, t *testing.T, name string, at place) {
		talk, port := talks[name], newPort()
		theirs := original(ctx, t, talk.passive.c, talk.passive.args(at.theirs, at.ours, port))
		for {
			ours := translated(ctx, at.lib, talk.active.translation, talk.active.args(at.ours, at.theirs, port))
			if <-ours.done; !absent(ours.err) {
				ours.wait(t, "the translation")
				break
			}
			select {
			case <-theirs.done:
				t.Fatalf("%s ended before it was connected to: %v", talk.passive.c, theirs.err)
			case <-time.After(listenWait):
			}
		}
		theirs.wait(t, talk.passive.c)
	})
}

// absent reports whether err means that the peer has no listener.
func absent(err error) bool {
	r, ok := errors.AsType[*rdmacm.RejectedError](err)
	return ok && r.Reason == verbs.RejInvalidServiceID || errors.Is(err, errAbsent)
}
