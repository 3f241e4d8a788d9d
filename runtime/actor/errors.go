package actor

import (
	"github.com/verbena-rdma/verbena/internal/sentinel"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// Errors of the package. verbena.RetryOf classifies them, too.
var (
	ErrConfig        = verbena.ErrConfig
	ErrClosed        = verbena.ErrClosed // of a system
	ErrStopped       = sentinel.Never("actor: stopped")
	ErrMailboxFull   = sentinel.Later("actor: mailbox full")
	ErrWouldDeadlock = sentinel.Never("actor: a handler may not wait for actors")
	ErrNoReply       = sentinel.Never("actor: the handler will not reply")
	ErrNoActor       = sentinel.Never("actor: the zero Ref has no actor")
	ErrTooMany       = sentinel.Later("actor: too many operations under way")
	ErrUnhandled     = sentinel.Never("actor: the handler has no method for this")
	ErrRestarted     = sentinel.Never("actor: of an instance that has failed")
	ErrEscalated     = sentinel.Never("actor: a child could not be restarted")
	ErrGoexit        = sentinel.Never("actor: the handler ended its goroutine")
)

// errNoRoomInHandler is returned by a Tell in a handler that would have to wait for room.
var errNoRoomInHandler = sentinel.Later("actor: the mailbox is full, and a handler may not wait for room", ErrWouldDeadlock, ErrMailboxFull)

// PanicError is a panic of a handler.
type PanicError = verbena.PanicError
