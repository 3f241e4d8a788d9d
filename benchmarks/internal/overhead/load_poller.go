package overhead

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/bed"
	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	"github.com/verbena-rdma/verbena/benchmarks/internal/suite"
	"github.com/verbena-rdma/verbena/reactor"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// poller loads Go's network poller: a byte that goes back and forth over TCP, and timers.
type poller struct {
	rt         *verbena.Runtime // with a loop that never sleeps; nil for none
	near, far  net.Conn
	took, late suite.Samples
}

// newPoller makes the poller's load alone, and newPollerBesides beside a runtime of the latency
// policy, whose loop has one of the processors.
func newPoller(bed.Place) (suite.Load, error) { return meetOverTCP() }

func newPollerBesides(at bed.Place) (suite.Load, error) {
	p, err := meetOverTCP()
	if err != nil {
		return nil, err
	}
	provider, err := at.Provider()
	if err == nil {
		p.rt, err = verbena.Open(verbena.Config{Provider: provider, Device: at.Here(), Policy: reactor.PolicyLatency})
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// meetOverTCP makes a connection whose far end echoes all bytes.
func meetOverTCP() (*poller, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	p := &poller{}
	if p.near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		return nil, err
	}
	if p.far, err = ln.Accept(); err != nil {
		return nil, errors.Join(err, p.near.Close())
	}
	go echo(p.far)
	return p, nil
}

// echo sends all input back until the connection is closed.
func echo(c net.Conn) {
	b := make([]byte, 1)
	for {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// pollerTimer is the delay of each timer, and pollerTimers the number of round trips between two
// of them.
const pollerTimer, pollerTimers = time.Millisecond, 16

// Round makes n round trips, and a timer after some of them. It reports the round trips, and the
// lateness of the timers.
func (p *poller) Round(n int, found rounds.Values) error {
	p.took.Room(n)
	p.late.Room(n/pollerTimers + 1)
	b := []byte{1}
	for i := range n {
		began := time.Now()
		if _, err := p.near.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(p.near, b); err != nil {
			return err
		}
		p.took = append(p.took, time.Since(began))
		if i%pollerTimers == 0 {
			began = time.Now()
			<-time.After(pollerTimer)
			p.late = append(p.late, time.Since(began)-pollerTimer)
		}
	}
	p.late.Report(found)
	found[vLate] = found[suite.P50]
	p.took.Report(found)
	return nil
}

// vLate is the median lateness of the timers.
const vLate = "late_ns"

func (p *poller) Close() error {
	return errors.Join(p.near.Close(), p.far.Close(), bed.Close(p.rt))
}
