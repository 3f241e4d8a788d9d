// Package messages is the suite "messages" of the benchmarks: what a message costs, between two connected
// goroutines of one process and between actors, beside Go's channels.
//
// # How it measures
//
// A worker process (this program, started again) runs one load and lives through all rounds. Both ends are in the
// worker, two runtimes on two devices of the software RNIC, so the CPU time of a message is that of both ends.
// The sides of a trial take turns.
//
// # Loads
//
//	one way     a goroutine starts lists of messages, and another one receives and releases them; messages of
//	            1 MiB are started one by one
//	ping-pong   a goroutine sends a message and waits for the answer of another one
//	tell        goroutines send to one actor, which adds numbers
//	ask         a goroutine asks the actor, and waits for the answer
//
// The baselines are Go's channels: with a buffer for one way and for tell, without one for ping-pong and ask; and
// WRITEs of the same size in the same lists, which need no receiver.
//
//	command.go        the flags
//	trials.go         the rows
//	worker.go         this program as a side
//	link.go           a connection with both its ends
//	load_oneway.go    one way: messages of managed connections, WRITEs, a channel
//	load_raw.go       one way: messages of raw connections
//	load_large.go     one way: messages and WRITEs of 1 MiB
//	load_pingpong.go  ping-pong: messages, channels
//	load_actors.go    tell and ask: actors, channels
package messages
