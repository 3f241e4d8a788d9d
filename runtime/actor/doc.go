// Package actor provides actors. An actor is an object that handles one thing at a time: a message,
// the completion of an operation, an event of a connection or of the device, or a timer.
//
//	type counter struct{ n int }
//
//	func (c *counter) Receive(ctx *actor.Context[add], m add) { c.n += m.by }
//
//	sys, err := actor.New(actor.Config{Runtime: rt})
//	ref, err := actor.Spawn(sys, actor.Options{}, func() actor.Handler[add] { return &counter{} })
//	err = ref.Tell(ctx, add{by: 1})
//
// # Overview
//
//	System ─┬─ actor ─┬─ child     spawned by a handler, with its Context
//	        ├─ actor  └─ child
//	        └─ actor               spawned with the System
//
// A [Ref] is an actor's address for messages of its type. A [Handler] is the actor's behavior; it
// receives other events by implementing [Starter], [Stopper], [Completer], [Connector],
// [DeviceWatcher], [Timed] or [Supervisor]. Through its [Context] a handler starts operations, owns
// connections, sets timers and spawns children.
//
// # Life cycle
//
//	       Started           Stop            mailbox empty,          no child, connection,
//	spawn ────────> up ───────────> draining ──────────────> parting ─────────────────────> ended
//	  ^             │                  │     no operation       │       operation: Stopped    ^
//	  │             └────────┬─────────┴──────────┬─────────────┘                            │
//	  │              failure │                    │ StopNow                                  │
//	  │                      v                    v                                          │
//	  │              winding up: aborts connections, stops children now, reports             │
//	  │              completions; when nothing is left: Stopped                              │
//	  │                      │ to be restarted        │ else                                 │
//	  └── a new instance ── resting                  └──────────────────────────────────────┘
//
// The comment of the type phase in core.go has the complete diagram. An instance ends as a whole:
// every operation, child, connection and timer that it began has ended before Stopped is called,
// and Done is closed only after the last instance. So once an actor has ended, the device no longer
// writes into the memory of its operations, and a completion reaches only the instance that started
// the operation. (A connection counts as ended when none of its work is outstanding; it is
// destroyed a moment later, which Conn.Gone reports.)
//
// A failure is a panic in a handler, an error of Started, or a handler that calls runtime.Goexit.
// The mailbox survives a failure that a restart follows. An actor that fails while it is stopping,
// or that is stopped while it rests, is not restarted: its mailbox is reported as dead letters.
//
// # Order
//
// Three queues lead to a handler:
//
//	requests to stop   overtake everything
//	system lane        device events and events of children, in their order
//	events, messages   alternate while there are both
//
// Events are completions, connection events and timers, in the order in which they happened.
// Messages are handled in the order in which they entered the mailbox. So:
//
//   - Messages of one goroutine, or of one actor, to one actor stay in order.
//   - Completions of one connection's send queue come in the order of the operations, except for
//     operations that could not be posted. A connection's events come in the order established,
//     messages, closed.
//   - A completion or a timer may overtake messages and may be overtaken by them.
//   - After Stop, Tell fails at once, and the handler still handles the mailbox. After StopNow the
//     mailbox is not handled.
//   - When a connection ends, its ConnClosed may come before the completions of operations that
//     failed with it. All of these completions come.
//
// # Delivery
//
// Guaranteed:
//
//   - A message whose Tell returned nil is handled once, or reported once to Config.DeadLetters. It
//     is reported if the handler panicked on it, StopNow stopped the actor, a failure ended the
//     actor, or Overflow is Drop and the mailbox was full.
//   - An operation that Start accepted has one Completion, or one dead letter if the instance wound
//     up before. A full mailbox cannot drop the Completion: its place is reserved before the
//     operation starts.
//   - An Ask always ends: with the answer, or with ErrNoReply when no answer will come.
//   - A timer that was canceled, or that was due but not yet handled when the actor was stopped, is
//     not delivered.
//   - One method of an actor runs at a time; each call sees the effects of the calls before.
//   - Tell and completions allocate nothing in steady state.
//
// Current behavior, subject to change: events and messages alternate one by one; Every counts from
// the end of the last handling; the first free goroutine of the pool runs the next actor with work.
//
// # Waiting
//
// A handler on the pool may block; it then occupies one of Config.Workers. A handler on a reactor
// must not block. A handler never waits for room in a mailbox: Tell returns ErrWouldDeadlock
// instead, and the handler drops the message or tries again at a timer. Tell recognizes a handler
// by its Context or, more slowly, by its stack. Tell does not recognize another goroutine that the
// handler waits for, unless that goroutine passes the Context.
//
// Start does not block either when the send queue is full or the peer has granted no credit: the
// operation waits in a list that the actor has for the connection, and one goroutine posts the list
// while it is not empty. Options.Operations bounds the list.
//
// # Not implemented
//
// References to actors in other processes, strategies over several children, and clusters. The API
// leaves room for them: a Ref is one word without exported fields, a Parent is an interface that
// other packages cannot implement, and child events carry numbers and names instead of pointers.
package actor
