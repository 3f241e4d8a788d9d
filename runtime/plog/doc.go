// Package plog is a persistent log that programs on other machines append to. A record travels as one
// RDMA WRITE, a FLUSH makes it persistent, and the FLUSH's answer acknowledges it: the server's
// processor takes no part. After any failure the log has every acknowledged record, and none that is
// not whole.
//
// The server (error handling is omitted):
//
//	r, err := rt.NewFileRegion("/dev/dax0.0", size, plog.Access)
//	log, err := plog.Open(r) // or Create
//	conn, err := ln.Accept(ctx)
//	err = log.Serve(ctx, conn)
//
// A writer, and a reader in the server's process:
//
//	w, err := plog.Join(ctx, rt, conn, lane)
//	position, err := w.Append(ctx, []byte("record"))
//
//	r, err := log.Reader(lane)
//	rec, ok, err := r.Next()
//	err = r.Trim()
//
// # What an acknowledgement means
//
//	Append, or Wait, returns nil    the record is persistent, and so are all that this Writer has
//	                                started before
//	the error of a context          unknown; Wait may be called again
//	another error of Wait,          unknown: the record is in the log or not. The lane's next writer
//	ErrUnknown of Append            finds out by Writer.Position
//	Start returns an error,         the record is not in the log
//	Append another than ErrUnknown
//	Next returns a record           the record is persistent, acknowledged or not
//
// Persistent means what it means for the file (runtime: Region.Persistence). On persistent memory it
// is the loss of power. On a file it is what the file system promises for msync. The log is as whole
// after SIGKILL as after that.
//
// # Lanes
//
// A log has a fixed number of lanes, each the ring of one writer at a time. Writers share nothing: no
// word that they would have to change atomically, and no line of a cache. So a writer that dies in the
// middle of a record leaves no gap between the records of others. Records of different lanes have no
// order; within a lane the position tells it. A program that needs one order for all puts a number in
// its records.
//
// # What a writer can reach
//
// A writer reaches its ring alone, through memory windows that Serve binds for it. It cannot read it. What
// it writes there is not trusted: readers check bounds and checksum of a copy.
//
// While the lane keeps records of earlier writers, the windows cover only what is free: one, two at the
// ring's end, or none if the ring is full. They are bound anew when the writer asks for space and the server has
// trimmed. The old ones live until the writer asks by the new ones, when nothing that it has posted uses them
// any more. When the records of earlier writers have been trimmed, one window covers the ring, and stays. A question for
// space costs a message each way; with new windows also, for each of them, the allocation and the end of a
// window, which are system calls on a real device, and a request on the server's queue pair to bind it. There is one such
// question for each time that the free space is used up, and none behind that for an append.
//
// So a hostile writer can change its own records as long as they are not trimmed, also after they were
// acknowledged or read, and keep its lane. A reader then has ErrCorrupt until another writer has the lane,
// or other records. It cannot change those of earlier writers, and none that it leaves behind counts as one of a later
// writer, whose generation it does not know. When Serve has ended, it reaches nothing.
//
// A lane remembers up to which position readers have made records persistent. The next writer does not
// begin before it, even if the last one has taken these records back: the lines without a whole record are filled
// with voids (kind 3). The position is not in the state: when the log is opened again it is that of the
// state's head or claimed. A program that must not meet a position again after that trims.
//
// # The medium
//
// All numbers are little-endian. A line has 64 bytes, as a cache line. A store of 8 bytes is never
// torn; nothing relies on that, because everything larger than a byte has a checksum.
//
//	line 0              header
//	line 1 + 2 lane     slot 0 of the lane's state
//	line 2 + 2 lane     slot 1
//	next multiple       the rings, one after the other
//	of 4096 bytes
//
//	header   0 "VRBNPLOG"  8 version (4)  12 lanes (4)  16 size of a ring  24 id  32 zero  56 checksum
//	state    0 checksum    8 sequence     16 head      24 claimed         32 generation
//	record   0 checksum    8 position     16 generation 24 length (4)     28 lane (2)  30 kind (2)  32 payload
//
// Checksums are XXH64, of the bytes before it in the header. In states and records it covers what is
// behind it, preceded by the log's id in place of the checksum. The id is a random number. So what another log has left
// in the file is not taken for this one's.
//
// A position counts lines since the lane was made, and never returns; position modulo the ring's lines
// is the place in the ring. It is the record's sequence number: what is left of an earlier lap has
// another position. A record does not pass the ring's end. A pad (kind 2) fills the lines that are left
// there.
//
// The generation is a random number that the server draws for each writer of a lane. The state has that of the
// last writer, and where it began: claimed. Behind claimed only records of this generation count, before it
// only whole ones that end there. Otherwise a record could return from the dead: a writer has started the records A and B, A is
// torn and B whole when the power fails, and the next writer puts an equally long record in A's place.
// B would follow it.
//
// # State machines
//
// The log, as Create makes it. Each arrow is a store, made persistent before the next:
//
//	anything ──header zero──> no log ──states of all lanes──> no log ──header──> log
//
// A lane:
//
//	         claim: keep, change              the windows are bound, the grant sent
//	free ─────────────────────────> claimed ─────────────────────────────────────> written
//	  ^                                │                                              │
//	  └────────────────────────────────┴──────────────────────────────────────────────┘
//	                     the connection has ended, or Serve; the windows are revoked
//
// A record:
//
//	space ──WRITE──> torn or whole, not persistent ──FLUSH──> persistent ──answer──> acknowledged
//	  ^                                                                                   │
//	  └──────────────────── Trim: the state's head is persistent ──────── Next ───────────┘
//
// # What is persistent before what
//
//	R1  the record before its acknowledgement. WRITE and FLUSH are posted in this order on one queue
//	    pair, whose requests the server's device executes in order. The FLUSH covers everything that
//	    the writer has written and not flushed. So no fence is needed between them, and the
//	    acknowledgement of a record is that of all before it.
//	R2  the records that a lane's last writer has left, before the state that says so (claim: keep,
//	    then change). Some may be whole and were never flushed; the next writer's would stand behind a hole.
//	R3  the state with the new generation before the writer gets to know it. Its records would not
//	    count.
//	R4  the state with the new head before the writer gets to know that the space is free. It would
//	    overwrite records that the old state still needs.
//	R5  a record before Next returns it. The program would act on a record that is lost afterwards.
//	R6  in Create: no header before the states change, and the states before there is a header.
//
// A change of a state writes the slot that the current one does not use. So one of them is whole at
// any time, and the other, if it is whole, is older. If making something persistent fails, the log
// fails (ErrFailed): the system may have dropped what it could not write.
//
// The tests take each of these steps out, and find for each a loss of power after which a rule is broken
// (TestEveryFlushIsNeeded).
//
// # Limits
//
// The log does not find out that two processes have opened it: the program sees to that. The log
// authenticates no writer: any peer of a connection that the program serves may join a free lane, unless Serve is
// called with the lanes that are the peer's. A program whose writers have names does that.
package plog
