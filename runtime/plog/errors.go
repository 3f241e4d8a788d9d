package plog

import "github.com/verbena-rdma/verbena/internal/sentinel"

// The errors of the package. The constructor of an error says when the same call may succeed.
var (
	// ErrNoLog means that the region has no log: its header is missing, torn or of another version. A
	// torn header is that of a log whose Create did not return, so that nothing can have been
	// acknowledged.
	ErrNoLog = sentinel.Never("plog: no log")
	// ErrCorrupt means that persistent bytes have changed: a record is not whole that was whole and
	// persistent before. The log never does that to itself.
	ErrCorrupt = sentinel.Never("plog: corrupt log")
	// ErrFailed means that bytes could not be made persistent. It is then unknown which are, so the log
	// refuses everything until it is opened again.
	ErrFailed = sentinel.Never("plog: the log has failed")
	// ErrGeometry means that a log cannot have these lanes, or does not fit into its region.
	ErrGeometry = sentinel.Never("plog: bad geometry")
	// ErrLane means that the log does not have this lane, or that the server does not lend it to this
	// writer.
	ErrLane = sentinel.Never("plog: no such lane")
	// ErrLaneHeld means that another connection writes the lane. A writer that dials again gets it
	// until the server has noticed the end of its last connection (Options.PeerTimeout).
	ErrLaneHeld = sentinel.Later("plog: the lane has a writer")
	// ErrFull means that the lane has no space for the record until the server reads and trims, or, from
	// [Join], that the lane has had all its positions.
	ErrFull = sentinel.Later("plog: the lane is full")
	// ErrUnknown means that the record was started, and may be in the log or not. To append it again may
	// append it twice: the next writer of the lane finds out by [Writer.Position].
	ErrUnknown = sentinel.Never("plog: unknown whether the record is in the log")
	// ErrTrimmed means that the records of a reader have been freed, by another reader of the lane.
	ErrTrimmed = sentinel.Never("plog: the record is trimmed")
	// ErrTooLarge means that a record is larger than [Writer.MaxRecord].
	ErrTooLarge = sentinel.Never("plog: the record is too large")
	// ErrMessage means that the peer sent a message that this package does not know.
	ErrMessage = sentinel.Never("plog: malformed message")
)
