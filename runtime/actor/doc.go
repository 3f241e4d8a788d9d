// Package actor provides actors: objects that handle one thing at a time, be it a message of
// another actor, the completion of an operation, an event of a connection or of the device, or a
// timer.
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
// A [Ref] is an actor's address for messages of its type. A [Handler] is its behavior; it receives
// other events by implementing [Starter], [Stopper], [Completer], [Connector], [DeviceWatcher],
// [Timed] or [Supervisor]. A [Context] is what a handler acts through: it starts operations, owns
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
// The comment of phase in core.go has the complete diagram. An instance ends as a whole: every
// operation, child, connection and timer that it began has ended before Stopped is called, and Done
// is closed only after the last instance. So the device cannot write into memory of an ended
// actor's operations, and a completion never reaches another instance than the one that started the
// operation. (A connection counts as ended when none of its work is outstanding; it is destroyed,
// Conn.Gone, a moment later.)
//
// A failure is a panic in a handler, an error of Started, or a handler that ends its goroutine
// (OnPool only; on a reactor that ends the callbacks of the reactor). The mailbox survives a
// failure. An actor that is already stopping, or that is stopped while it rests, is not restarted:
// its mailbox is reported.
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
//     operations that could not be posted. A connection's events come as established, messages in
//     order, closed.
//   - A completion or a timer may overtake messages and may be overtaken by them.
//   - Stop takes effect at once for senders, and for the handler after the mailbox; StopNow takes
//     effect before the mailbox.
//   - Closed may come before completions of operations that the end of the connection has failed.
//     All of them come.
//
// # Delivery
//
// Guaranteed:
//
//   - A message whose Tell returned nil is handled once, or reported once to Config.DeadLetters:
//     because the handler panicked on it, the actor was stopped now, ended with its failure, or
//     Drop dropped the message. It is never handled again.
//   - An operation that Start accepted has one Completion, or one dead letter if the instance wound
//     up before. A full mailbox cannot drop it: its place is reserved before the operation starts.
//   - An Ask always ends: with the answer, or with ErrNoReply when no answer will come.
//   - A timer that was canceled, or due when the actor stopped, is not delivered.
//   - One method of an actor runs at a time; each sees the effects of the one before.
//   - Tell and completions allocate nothing in steady state.
//
// Current behavior, subject to change: events and messages alternate one by one; Every counts from
// the end of the last handling; an actor with work runs on the goroutine of the pool that is free
// first.
//
// # Waiting
//
// A handler on the pool may block; it then occupies one of Config.Workers. On a reactor it must
// not. A handler never waits for room in a mailbox: Tell returns ErrWouldDeadlock instead. Tell
// recognizes a handler by its Context or, more slowly, by its stack. It does not recognize another
// goroutine that the handler waits for, unless that goroutine passes the Context. The handler
// decides what to do: drop the message, or try again at a timer.
//
// An operation that finds the send queue full, or the peer without a credit, does not block either:
// it waits in a list of the actor for that connection, and one goroutine posts the list while it is
// not empty. Options.Operations bounds the list.
//
// # Not implemented
//
// References to actors in other processes, strategies over several children, and clusters. The API
// leaves room for them: a Ref is one word without exported fields, a Parent is an interface that
// other packages cannot implement, and child events carry numbers and names instead of pointers.
package actor
