package soft

import (
	"github.com/verbena-rdma/verbena/verbs"
	"github.com/verbena-rdma/verbena/verbs/soft/roce"
)

// Progress has the device of ctx, which has a socket, send what was posted and handle what has arrived,
// and returns the counters of the socket. It waits for runs on other goroutines, so it holds even if one
// of these does not get a processor.
func Progress(ctx verbs.Context) roce.Stats {
	d := ctx.(*deviceContext).dev
	d.exclusive(func() {})
	s := d.link.Load().Stats()
	d.exclusive(func() {})
	return s
}
