// Package wire is the protocol between the test machine's host and its agent: frames on a byte
// stream, in both directions, many commands at the same time.
//
// A frame is a header of nine bytes (payload length, kind, job, little-endian) and its payload.
// The host numbers the jobs; job 0 is the link itself. The reader trusts nothing: a length above
// [MaxPayload] or an unknown kind ends the link, because the following bytes cannot be parsed.
//
//	host                      agent
//	          <- Hello        once, when the machine is ready: a [Greeting]
//	Ping ->   <- Pong         at any time
//	Start ->                  a [Spec]; the job's number is new
//	          <- Started      the process's id as text
//	Signal ->                 one byte; to the job's process group
//	          <- Stdout, Stderr
//	          <- Exit         an [Ended]; the job's last frame
//	Blocked ->                the kernel shall log its blocked tasks
//	Halt ->                   the machine shall power off
//
// The same frames go over the socket of `rxevm with`, one connection for each command, without
// Hello and Ping.
package wire
