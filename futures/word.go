package futures

// The word of a cell: one generation of it is one operation.
//
//	63                                  16 15                    0
//	+-------------------------------------+-----------------------+
//	|             generation              |         flags         |
//	+-------------------------------------+-----------------------+
//
//	          Settle claims          Settle publishes
//	PENDING ----------------> SETTLING ----------------> SETTLED
//	   ^                       |    ^ \                     |
//	   |                       |    |  \ LINK is set        | Await, Poll, Then,
//	   |                       |    |   v                   | Discard: one CAS
//	   |                       |    |  WRITTEN -- unlink -->|
//	   |                       |  flags below               |
//	   |                       |  may come and go           |
//	   |                       | THEN, or DISCARDED         |
//	   |                       v without AWAITED            v
//	   +---------------- the next generation <--------------+
//
// Consuming is the one CAS that moves the word to the next generation with no flag of the above set. From then on no handle
// of the old generation is accepted and none of the new one exists, so the goroutine whose CAS it was owns the whole cell
// until it puts it back: into the pool, or, by clearing BUSY, into the seat that the cell is kept in. That is why an old
// handle can never meet another operation's result.
//
// Who sets and clears which flag, and what it publishes:
//
//	SETTLING   set by Settle: its goroutine alone writes value and err.
//	WRITTEN    set by Settle while LINK is set: value and err are in; whoever holds LINK publishes in its place.
//	           (So a settler never waits for a goroutine that was descheduled while attaching.)
//	SETTLED    set by Settle, or by the holder of LINK after WRITTEN: publishes value and err. Never with LINK.
//	LINK       set by Done, Then or Group Add, before SETTLED only: its holder alone writes done, then, direct or group.
//	           A second attacher of the same future waits for the first; nobody else does.
//	AWAITED    set and cleared by Await: an awaiter has the only right to consume. A settled result is his for sure.
//	DRIVEN     set with AWAITED, cleared when Drive returned or there is no driver: Offer is possible.
//	PARKED     set by Announce or Park; cleared by exactly one of settle, Offer, Retract, or Park after its context ended.
//	DONE       set by Done: publishes the channel. DONE, THEN and GROUPED stay till the generation ends, and the field
//	THEN       set by Then: publishes the callback.   that a flag publishes is not written again before that.
//	GROUPED    set by Group Add: publishes the group.
//	DISCARDED  set by Discard before SETTLED: the result goes to Dispose.
//
// SEATED   set while the cell is a Seat's: kept there from operation to operation instead of in the pool. Set by NewIn for
//
//	         a cell that nobody else knows; cleared by NewIn, at any time, when the seat takes another.
//	BUSY     set with the consuming CAS of a SEATED cell, cleared by the consumer when it has read the result: NewIn may
//	         use the cell again.
//
// In a Group's word only SETTLED, AWAITED, DRIVEN and PARKED are used; its generation is the number of the Wait.
const (
	bitSettling uint64 = 1 << iota
	bitWritten
	bitSettled
	bitLink
	bitAwaited
	bitDriven
	bitParked
	bitDone
	bitThen
	bitGrouped
	bitDiscarded
	bitSeated
	bitBusy

	genShift = 16 // 48 bits of generation: at a million reuses of one cell per second they last nine years
	flagMask = 1<<genShift - 1

	// attended are the flags with which settling has more to do than to set SETTLED.
	attended = bitParked | bitDone | bitThen | bitGrouped | bitDiscarded
)

// generationOf returns w without its flags: what a handle carries.
func generationOf(w uint64) uint64 { return w &^ flagMask }

// nextGeneration returns the word of a fresh cell after the operation in w has been consumed.
func nextGeneration(w uint64) uint64 { return generationOf(w) + 1<<genShift }

// consumed returns the word with which the operation in w is consumed.
func consumed(w uint64) uint64 {
	next := nextGeneration(w)
	if w&bitSeated != 0 {
		next |= bitSeated | bitBusy
	}
	return next
}

// refuse says why a handle of generation gen may not use a cell whose word is w; nil when it may.
func refuse(w, gen uint64) error {
	switch {
	case generationOf(w) != gen, w&bitThen != 0:
		return ErrConsumed
	case w&bitDiscarded != 0:
		return ErrDiscarded
	}
	return nil
}
