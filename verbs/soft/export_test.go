package soft

import "github.com/verbena-rdma/verbena/verbs"

// Progress has the device of ctx, which has a socket, send what was posted and handle what has arrived.
// It waits for runs on other goroutines, so it holds even if one of these does not get a processor.
func Progress(ctx verbs.Context) {
	d := ctx.(*deviceContext).dev
	d.exclusive(func() {})
	d.link.Load().Stats()
	d.exclusive(func() {})
}
