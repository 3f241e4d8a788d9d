// Package seam gives runtime/actor access to parts of package runtime that users may not call.
// Package runtime sets the variables when the program starts; they do not change afterwards.
package seam

import "github.com/verbena-rdma/verbena/reactor"

var (
	// EndConn begins to end conn, a *runtime.Conn, as Close does, without waiting: outstanding
	// operations have the time that they need, all of it bounded. Gone is closed at the end.
	EndConn func(conn any)
	// LoopReactor returns the reactor of loop, a runtime.Loop.
	LoopReactor func(loop any) *reactor.Reactor
)
