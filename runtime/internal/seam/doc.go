// Package seam is what runtime/actor needs of package runtime and no user may call. Package
// runtime sets it when the program starts; nothing changes it afterwards.
package seam

import "github.com/verbena-rdma/verbena/reactor"

var (
	// EndConn starts the end of conn, a *runtime.Conn, as Close does, and waits for nothing:
	// what is under way has the time that it needs, all that is bounded. Gone is closed at the
	// end.
	EndConn func(conn any)
	// LoopReactor is the reactor of loop, a runtime.Loop.
	LoopReactor func(loop any) *reactor.Reactor
)
