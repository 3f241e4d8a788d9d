package soft

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
)

// LinkStats counts what a device sends and receives by its sockets, and what its reliable queue pairs sent
// again.
type LinkStats struct {
	roce.Stats // since the device was opened; zero for a device without sockets
	Again      // since the process began
}

// Again counts packets of reliable queue pairs that were sent more than once.
type Again struct {
	Resent uint64 // those packets, probes included
	Probes uint64 // because no acknowledgement came in a few round trips
}

// LinkStats returns the counters of a device's link. It waits for a running Progress call; any goroutine
// may call it. An unknown name yields a *verbs.DeviceError.
func (p *Provider) LinkStats(device string) (s LinkStats, err error) {
	d := p.device(device)
	if d == nil {
		return s, p.unknown(device)
	}
	d.exclusive(func() { s.Again = d.again })
	if l := d.link.Load(); l != nil {
		s.Stats = l.Stats()
	}
	return s, nil
}

var _ verbs.Explainer = (*deviceContext)(nil)

// Explain blames a receive buffer that was too small for requests without an answer; see [verbs.Explainer]. It waits
// for a running Progress call.
func (c *deviceContext) Explain(s verbs.WCStatus) string {
	l := c.dev.link.Load()
	if l == nil || s != verbs.WCRetryExcErr {
		return ""
	}
	return blame(l.Stats())
}

func blame(s roce.Stats) string {
	if s.Dropped == 0 {
		return ""
	}
	return fmt.Sprintf("%d datagrams found the receive buffer of %d bytes full: a larger net.core.rmem_max may help", s.Dropped, s.Buffer)
}
