package overhead

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/benchmarks/internal/rounds"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/ibv"
	"github.com/verbena-rdma/verbena/verbs/soft"
)

// The devices that a worker may run on.
const (
	devNull = "null"
	devSoft = "soft"
)

// ends are the names of the two devices, and the address of the second.
var ends = map[string]struct{ here, there, addr string }{
	devNull: {"null0", "null1", "127.0.0.2:0"},
	devSoft: {"soft0", "soft1", "127.0.0.2:0"},
}

// setUp and tearDown bound connecting and closing.
const setUp, tearDown = time.Minute, 10 * time.Second

// word is the size of a small operation, in bytes.
const word = 8

// pair is two runtimes on two devices in this process, and connections between them.
// What is measured is what happens here; there only answers, if the device has that.
type pair struct {
	here, there  *verbena.Runtime
	conns, peers []*verbena.Conn
	local        verbena.Slice
	remote       verbena.Remote
}

// provider is the device's.
func (m machine) provider() (verbs.Provider, error) {
	switch m.device {
	case devSoft:
		return soft.Default(), nil
	case devNull:
		return ibv.New(ibv.Config{Verbs: m.verbs, RDMACM: m.rdmacm})
	}
	return nil, fmt.Errorf("there is no device %q", m.device)
}

// connect makes a pair with n connections and size bytes on either side. around may put
// itself between our runtime and the device; nil leaves it.
func connect(m machine, cfg verbena.Config, n, size int, around func(verbs.Provider) verbs.Provider) (_ *pair, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), setUp)
	defer cancel()
	p := &pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	provider, err := m.provider()
	if err != nil {
		return nil, err
	}
	e := ends[m.device]
	there := cfg
	there.Provider, there.Device = provider, e.there
	if p.there, err = verbena.Open(there); err != nil {
		return nil, err
	}
	if around != nil {
		provider = around(provider)
	}
	cfg.Provider, cfg.Device = provider, e.here
	if p.here, err = verbena.Open(cfg); err != nil {
		return nil, err
	}
	ln, err := p.there.Listen(e.addr)
	if err != nil {
		return nil, err
	}
	for range n {
		seat, err := ln.AcceptAsync()
		if err != nil {
			return nil, err
		}
		c, err := p.here.Dial(ctx, ln.Addr().String())
		if err != nil {
			return nil, err
		}
		p.conns = append(p.conns, c)
		if c, err = seat.Await(ctx); err != nil {
			return nil, err
		}
		p.peers = append(p.peers, c)
	}
	if err := ln.Close(ctx); err != nil {
		return nil, err
	}
	own, err := p.here.NewRegion(size, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	if p.local, err = own.Slice(0, size); err != nil {
		return nil, err
	}
	theirs, err := p.there.NewRegion(size, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return nil, err
	}
	p.remote, err = theirs.Remote(0, size)
	return p, err
}

// close ends both runtimes with all that they have.
func (p *pair) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), tearDown)
	defer cancel()
	for _, rt := range []*verbena.Runtime{p.here, p.there} {
		if rt != nil {
			err = errors.Join(err, rt.Close(ctx))
		}
	}
	return err
}

// counted runs do and adds the work requests, lists and completions of our side.
func (p *pair) counted(found rounds.Values, do func() error) error {
	before := p.here.Stats()
	err := do()
	after := p.here.Stats()
	found[vPosted] = float64(after.WorkRequests - before.WorkRequests)
	found[vLists] = float64(after.Doorbells - before.Doorbells)
	found[vPolled] = float64(after.Polled - before.Polled)
	return err
}
