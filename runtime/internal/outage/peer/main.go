// Command peer is a process under load for testing outages; see package outage. It handles signals:
//
//	SIGUSR1   the peer is gone from now on
//	SIGUSR2   the peer is back
//	SIGTERM   end the load and report
//
// It prints these lines on its standard output, and at the end the report, one line of JSON:
//
//	ready             it serves
//	connected         it has made all its connections
//	connected again   it has made as many connections a second time
//	worked            its rounds are done
//	ended             all connections and all operations outstanding at SIGUSR1 have ended
//	removed           its device was removed; it ends the load by itself
//
// It lives until SIGTERM or an interrupt, even after the report. Its exit code is 0 if all
// invariants hold, 1 if one is broken, 2 if it could not start or report.
package main

import (
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/leak"
	"github.com/verbena-rdma/verbena/runtime/internal/outage"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// leakWait is the time that resources may take to disappear at the end.
const leakWait = 5 * time.Second

func main() {
	cfg, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(2)
	}
	told := make(chan os.Signal, 8) // more than the number of signals ever pending
	signal.Notify(told, mark, heal, syscall.SIGTERM, os.Interrupt)
	report, err := run(cfg, told, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(2)
	}
	if err := report.Broken(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func parse(args []string) (cfg outage.Config, err error) {
	f := flag.NewFlagSet("peer", flag.ContinueOnError)
	f.StringVar(&cfg.Runtime.Device, "device", "", "the device, with its provider: ibv:rxe0, soft:soft0")
	f.IntVar(&cfg.Runtime.Reactors, "reactors", 0, "reactors per NUMA node; 0: the default")
	f.TextVar(&cfg.Serve, "serve", netip.AddrPort{}, "the base of the ports to serve")
	f.TextVar(&cfg.Dial, "dial", netip.AddrPort{}, "the base of the ports to dial")
	f.TextVar(&cfg.Plain, "plain", netip.AddrPort{}, "the TCP address to serve connections without CM at")
	f.TextVar(&cfg.DialPlain, "dialplain", netip.AddrPort{}, "the TCP address to dial connections without CM at")
	f.IntVar(&cfg.Conns, "conns", 1, "connections of each role")
	f.IntVar(&cfg.Work, "work", 0, "rounds of each worker; 0: until the end")
	f.Uint64Var(&cfg.Seed, "seed", 1, "what the data is made of")
	f.DurationVar(&cfg.Bounds.Op, "op", 0, "bound of operations; 0: the default")
	f.DurationVar(&cfg.Bounds.Recv, "recv", 0, "bound of what waits for a peer that is gone; 0: the default")
	f.DurationVar(&cfg.Bounds.Slack, "slack", 0, "allowed beside each bound; 0: the default")
	return cfg, f.Parse(args)
}

// run runs a peer under load until a signal ends the load or the device is gone. It then writes the
// report, and returns after a signal that ends the load.
func run(cfg outage.Config, told <-chan os.Signal, out io.Writer) (*outage.Report, error) {
	before, err := leak.Take(
		leak.Gauge{Name: "objects of verbs/ibv", Read: ibv.Live},
		leak.Gauge{Name: "objects of verbs/soft", Read: soft.Live})
	if err != nil {
		return nil, err
	}
	cfg.Out = out
	p, err := outage.Open(cfg)
	if err != nil {
		return nil, err
	}
	stopped := load(p, told, out)
	report := p.Stop()
	report.Left = outage.Left(before.Check(leakWait), report.Removed)
	if _, err := report.WriteTo(out); err != nil {
		return nil, err
	}
	for !stopped {
		stopped = ends(<-told)
	}
	return report, nil
}

// load handles signals until a signal ends the load, and returns true, or until the device was
// removed, and returns false.
func load(p *outage.Peer, told <-chan os.Signal, out io.Writer) (stopped bool) {
	for {
		select {
		case s := <-told:
			switch {
			case ends(s):
				return true
			case s == mark:
				p.Mark()
			case s == heal:
				p.Heal()
			}
		case <-p.Removed():
			fmt.Fprintln(out, "removed")
			return false
		}
	}
}

// ends reports whether a signal ends the load.
func ends(s os.Signal) bool { return s == syscall.SIGTERM || s == os.Interrupt }
