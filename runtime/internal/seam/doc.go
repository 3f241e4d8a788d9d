// Package seam gives the packages actor and rpma access to parts of package runtime that users may not call.
// Package runtime sets the variables when the program starts; they do not change afterwards.
package seam

import "github.com/verbena-rdma/verbena/reactor"

var (
	// EndConn begins to close conn, a *runtime.Conn, as Close does, but does not wait. Outstanding
	// operations may still complete, within the time limits of the connection. The channel of
	// Conn.Gone is closed at the end.
	EndConn func(conn any)
	// LoopReactor returns the reactor of the argument loop, a runtime.Loop.
	LoopReactor func(loop any) *reactor.Reactor
	// ConnectError is matched by the error of an attempt to connect that the event CONNECT_ERROR has ended.
	ConnectError error
)
