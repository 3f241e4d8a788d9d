// Package fabric is the in-process link between the engines of the software RNIC. It handles
// packets and addresses, not queue pairs. Another link (UDP, shared memory) can replace it without
// a change to the engine.
//
// # Packets
//
// A [Packet] is encoded headers (package wire) and a payload that is usually only referred to: it
// lies in the sender's registered memory and the receiver copies it to its place, once. The
// packet's [Holder] is told when the reference is gone. A packet that does not move promptly
// (delayed, duplicated, reordered by the fault script) is copied first, store and forward, so that
// a reference lives only until the receiver's next run.
//
// # Running endpoints
//
// An [Endpoint] has no goroutine. A run is one call of its Progress by the holder of the port's
// token, the runner. In real time a goroutine that leaves work for an endpoint calls [Port.Kick]
// and thereby runs it, then the endpoints that got packets from it, and so on: a request, its
// execution at the other side and the acknowledgement happen on the goroutine that posted the
// request. The stages:
//
//  1. Kick takes the port's token, or leaves a mark for the runner.
//  2. The endpoint's Progress takes packets, acts and sends.
//  3. Sent packets go through the link's script and wait, in a chain for each destination, for the
//     run to end; then each chain goes into its inbox at once, and returned packets into their pool
//     (chain.go). One returned packet stays for the next send, which brings it home (Port.Return).
//  4. The runner releases the token and runs the noted ports likewise, in the order of noting,
//     until all are quiet or the budget is used up.
//  5. The pacemaker, the fabric's one goroutine, does the rest, and handles deadlines and delayed
//     packets.
//
// The data path never waits for a token; Exclusive sleeps until it is released. The token's states
// are drawn at its type, and TestTokenInterleavings explores their interleavings.
//
// In virtual time there is no goroutine and no clock: one goroutine calls [Fabric.Step] and
// [Fabric.AdvanceTo].
//
// # Faults
//
// Each directed link has a [Link] script: random faults from the link's own generator, seeded by
// the fabric's seed and the two addresses, and [Rule]s that count packets. [Fabric.Partition] cuts
// links between groups.
//
// # Bounds
//
// An inbox holds a bounded number of packets, and each link has a share of it: packets that do not
// fit are dropped. (Packets that one run sends to an empty inbox are not counted, and fit.) An
// [Endpoint] that can wait asks [Port.Room] before it sends, and is run again when there is room
// (room.go).
//
// # Allocation and locks
//
// Sending and receiving allocate nothing once the pools have grown, and take no lock; faults that
// copy payload allocate. Attaching, the first packet to a destination and scripts take the fabric's
// mutex.
package fabric
