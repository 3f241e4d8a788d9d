// Package actor provides actors. An actor is an object that handles one event at a time: a message,
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
// The comment of the type phase in core.go has the complete diagram. An instance is one Handler,
// from its creation to its end. Every operation, child, connection and timer of the instance has
// ended before Stopped is called. So a completion reaches only the instance that started the
// operation. Done is closed after the last instance has ended. From then on the device no longer
// writes to the memory of the actor's operations. (A connection counts as ended when none of its
// work is outstanding. It is destroyed a moment later: see Conn.Gone.)
//
// A failure is a panic in a handler, a fault in a handler at an address that is not mapped, an error of
// Started, a call of runtime.Goexit in a handler, or the end of a child that escalates
// (Restart.Escalate). If the actor is restarted after a failure, its mailbox is kept. An actor that fails while it is stopping, or that is stopped while it rests,
// is not restarted: its mailbox is reported as dead letters.
//
// # Order
//
// An actor first handles requests to stop, then the system lane, and then events and messages:
//
//	requests to stop   Stop and StopNow
//	system lane        device events and events of children, in their order
//	events, messages   alternate while there are both
//
// Events are completions, connection events and timers. They are handled in the order in which they
// happened. Messages are handled in the order in which they entered the mailbox. So:
//
//   - Messages of one goroutine, or of one actor, to one actor stay in order.
//   - Completions of one connection's send queue come in the order of the operations, except for
//     operations that could not be posted. A connection's events come in the order established,
//     messages, closed.
//   - A completion or a timer may overtake messages and may be overtaken by them.
//   - After any call of Stop has returned, Tell fails. The handler still handles the messages that are
//     in the mailbox. After StopNow it does not, and the Context of its running method has ended.
//   - When a connection ends, its ConnClosed may come before the completions of operations that
//     failed with the connection. These completions still come.
//
// # Delivery
//
// Guaranteed:
//
//   - A message whose Tell returned nil is handled once, or reported once to Config.DeadLetters. It
//     is reported if the handler panicked on it, StopNow stopped the actor, a failure ended the
//     actor, or Overflow is Drop and the mailbox was full. A message that a call of
//     Config.DeadLetters causes to be reported is only counted: see there.
//   - An operation that Start accepted has one Completion, or one dead letter if the instance winds
//     up first. (If the handler has no method Completed, only a failed operation is reported, as a
//     dead letter.) A full mailbox cannot drop the Completion: the memory of its event is reserved
//     before the operation starts.
//   - An Ask always ends: with the answer, with an error of Tell, or with ErrNoReply if the instance
//     ends without an answer.
//   - A timer that was canceled, or that was due but not yet handled when the actor was stopped, is
//     not delivered.
//   - One method of an actor runs at a time; each call sees the effects of the calls before.
//   - Tell and completions allocate nothing in steady state.
//
// The following may change: events and messages alternate one by one; the interval of Every begins
// when the previous call of Timer has returned; the first free goroutine of the pool runs the next
// actor that has work.
//
// # Waiting
//
// A handler on the pool may block; it then occupies one of the Config.Workers goroutines. A handler
// on a reactor must not block. A handler never waits for room in a mailbox: Tell returns
// ErrWouldDeadlock instead. The handler can then drop the message, or try again when a timer is due.
// Tell recognizes a handler by its Context or, more slowly, by its stack. If the handler waits for
// another goroutine, Tell recognizes that goroutine only if it passes the handler's Context.
//
// A handler on the pool may wait for the answer of an [Ask] with Await. While it waits, it handles no
// messages: handlers that wait for one another's answers wait until a context ends. No such cycle is
// recognized. So Await gets the handler's Context, which StopNow ends, or a context derived from it.
//
// Start does not block either. If the send queue is full or the peer has granted no credit, the
// operation waits in a list. An actor has one such list for each connection. While a list is not
// empty, a goroutine starts its operations as room becomes free. Operations in lists count toward
// Options.Operations.
//
// # Not implemented
//
// References to actors in other processes, restart strategies for several children together, and
// clusters are not implemented. They can be added without a change of the API: a Ref is one word
// without exported fields, other packages cannot implement Parent, and a ChildEvent has the number
// and the name of the child, not a pointer.
package actor
