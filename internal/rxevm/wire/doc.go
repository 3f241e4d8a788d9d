// Package wire is the language that the test machine's host and its agent
// speak: frames on a byte stream, in both directions, many commands at once.
//
// A frame is a head of nine bytes (payload length, kind, job, little-endian)
// and its payload. The host numbers the jobs; job 0 is the link itself. Who
// reads trusts nothing: a length above [MaxPayload] or a kind that is not in the
// list ends the link, because what follows cannot be told apart any more.
//
//	host                      agent
//	          <- Hello        once, when the machine is ready: a [Greeting]
//	Ping ->   <- Pong         at any time
//	Start ->                  a [Spec]; the job's number is new
//	          <- Started      the process's id as text
//	Signal ->                 one byte; to the job's process group
//	          <- Stdout, Stderr
//	          <- Exit         an [Ended]; the job's last frame
//	Blocked ->                the kernel is to log its blocked tasks
//	Halt ->                   the machine is to power off
//
// The same frames go over the socket of `rxevm with`, one connection for each
// command, without Hello and Ping.
package wire
