// Package fabric is the in-process link between the engines of the software
// RNIC. It knows packets and addresses and nothing of queue pairs. Another link
// (UDP, shared memory) takes its place without a change to the engine.
//
// # What goes over it
//
// A [Packet] is encoded headers (package wire) and a payload that is, as a
// rule, only referred to: it lies in the sender's registered memory and the
// receiver copies it from there to its place, once. The packet's [Holder] learns
// when the reference is gone. A packet that does not move promptly (delayed,
// duplicated, reordered by the fault script) is copied first, store and
// forward, so that a reference lives only as long as the receiver's next turn.
//
// # Who runs what
//
// An [Endpoint] has no goroutine. In real time whoever leaves work for it calls
// [Port.Kick] and thereby runs it, and then whoever got packets from it, and so on: a
// request, its execution at the other side and the acknowledgement happen on
// the goroutine that posted the request. The stages:
//
//  1. Kick takes the port's token, or leaves a mark to whoever has it.
//  2. The endpoint's Turn takes packets, acts and sends.
//  3. Sent packets go through the link's script and wait, in a chain for each
//     destination, for the turn to end; then each chain goes into its inbox
//     at once, and what was returned into its pool (chain.go). One packet that was
//     returned stays for what is sent next, which brings it home (Port.Return).
//  4. The token is released; the noted ports are turned likewise, in order of
//     noting, until all is quiet or the budget is used up.
//  5. The rest, deadlines, and delayed packets are the pacemaker's: the
//     fabric's one goroutine.
//
// Nobody ever waits for a token on the data path; Exclusive sleeps until it is released.
// The token's states are drawn at its type, and their interleavings are explored by
// TestTokenInterleavings.
//
// In virtual time there is no goroutine and no clock: one goroutine calls
// [Fabric.Step] and [Fabric.AdvanceTo].
//
// # Faults
//
// Each directed link has a [Link] script: chance from a generator of its own,
// seeded by the fabric's seed and the two addresses, and [Rule]s that count
// packets. [Fabric.Partition] cuts links between groups.
//
// # Bounds
//
// An inbox holds a bounded number of packets, and each link a share of that: what
// does not fit is dropped. (What one turn sends to an empty inbox is not counted, and fits.)
// An [Endpoint] that can wait asks [Port.Room] before it
// sends, and is turned again when there is room (room.go).
//
// # Allocation and locks
//
// Sending and receiving allocate nothing once the pools have grown, and take no
// lock; faults that copy payload allocate. Attaching, the first packet to a
// destination and scripts take the fabric's mutex.
package fabric
