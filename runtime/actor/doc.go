// Package actor has actors: objects that handle what happens to them one thing at a
// time, be it a message of another actor, the completion of an operation, an event of a
// connection or of the device, or a timer.
//
//	type counter struct{ n int }
//
//	func (c *counter) Receive(ctx *actor.Context[add], m add) { c.n += m.by }
//
//	sys, err := actor.New(actor.Config{Runtime: rt})
//	ref, err := actor.Spawn(sys, actor.Options{}, func() actor.Handler[add] { return &counter{} })
//	err = ref.Tell(ctx, add{by: 1})
//
// # Who is who
//
//	System ─┬─ actor ─┬─ child     spawned by a handler, with its Context
//	        ├─ actor  └─ child
//	        └─ actor               spawned by anybody, with the System
//
// A [Ref] names an actor to those who send it messages of its type. A [Handler] is its
// behaviour; what else it wants to hear it says by having the methods of [Starter],
// [Stopper], [Completer], [Connector], [DeviceWatcher], [Timed] and [Supervisor]. A
// [Context] is what it can do: start operations, own connections, set timers, spawn.
//
// # The life of an actor
//
//	       Started           Stop            mailbox empty,          no child, connection,
//	spawn ────────> up ───────────> draining ──────────────> parting ─────────────────────> ended
//	  ^             │                  │     no operation       │       operation: Stopped    ^
//	  │             └────────┬─────────┴──────────┬─────────────┘                            │
//	  │              failure │                    │ StopNow                                  │
//	  │                      v                    v                                          │
//	  │              winding up: connections are aborted, children stopped now, what         │
//	  │              completes is reported; when nothing is left: Stopped                    │
//	  │                      │ the rule says so       │ else                                 │
//	  └── a new instance ── resting                  └──────────────────────────────────────┘
//
// (phase in core.go has all of it.) An instance ends as a whole: whatever it began, be
// it an operation, a child, a connection or a timer, has ended before Stopped is called, and Done
// is closed only after the last. So an actor that ended has nothing that the
// device could still write into, and what an operation brings never reaches another
// instance than the one that started it. (A connection has ended when
// nothing of it is out any more: it is destroyed, Conn.Gone, a moment later.)
//
// A failure is a panic in a handler, an error of Started, or a handler that ends its
// goroutine (OnPool only: on a reactor that ends the callbacks of that reactor). The mailbox
// outlives it. Not so when the actor is already to stop, or is stopped
// while it rests: then it does not come back, and its mailbox is reported.
//
// # Order
//
// Three queues lead to a handler:
//
//	requests to stop   overtake everything
//	system lane        device events, what became of children: in their order
//	events, messages   in turns while there are both
//
// Events are completions, connection events and timers, in the order in which they
// happened. Messages are handled in the order in which they came into the mailbox. So:
//
//   - What one goroutine, or one actor, tells one actor stays in order.
//   - Completions of one connection's send queue come in the order of the operations, but for
//     those that could not be posted; and a connection's events as established, messages in order, closed.
//   - A completion may overtake messages and may be overtaken; so may a timer.
//   - Stop takes effect at once for those who tell, and for the handler behind what is in
//     the mailbox; StopNow in front of it.
//   - Closed may come before completions of operations that the connection's end has
//     failed. All come.
//
// # Delivery
//
// Guaranteed:
//
//   - A message whose Tell returned nil is handled once, or reported once to
//     Config.DeadLetters: because the handler panicked over it, the actor was stopped now, or
//     ended with its failure, or Drop dropped it. It is never handled again.
//   - An operation that Start accepted has one Completion, or one dead letter if the instance
//     wound up before. A full mailbox cannot drop it: the place is taken before the operation
//     starts.
//   - An asker is told: the answer, or ErrNoReply when nobody will give one any more.
//   - A timer that was cancelled, or due when the actor stopped, is not delivered.
//   - One method of one actor at a time; each sees what the last one did.
//   - Tell and completions allocate nothing in steady state.
//
// Behaviour today, and subject to change: that events and messages alternate one by one; that
// Every counts from the end of the last handling; that an actor that was told something runs
// on the pool's goroutine that is free first.
//
// # Waiting
//
// A handler on the pool may block; it then takes one of Config.Workers. On a reactor
// it must not. No handler waits for room in a mailbox: Tell answers ErrWouldDeadlock when
// it would have to. It knows a handler by its Context, and, slower, by its stack; but a
// goroutine that the handler started and waits for it does not know, unless that has
// the Context. The handler decides what to do: drop, or try again at a timer.
//
// An operation that finds the send queue full, or the peer without a free receive, does not
// block either: it waits in a list of the actor's for that connection, which one
// goroutine feeds while it is not empty. Options.Operations bounds that.
//
// # What is not here yet
//
// References to actors in other processes, strategies over several children, and
// clusters. A Ref is a value of one word without exported fields, a Parent an interface that
// is not implemented elsewhere, and child events carry numbers and names, not pointers, so that there is
// room for them.
package actor
