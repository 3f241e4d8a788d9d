// Package nulldev builds and controls the null device: a small C library with
// the entry points of libibverbs and librdmacm, symbol versions and all, that
// needs no hardware and no kernel module. [Build] makes the two libraries, with
// the C compiler of the machine; a provider loads them by path as it loads the
// system's; [Open] reaches them beside the provider, to script faults and to
// read counters.
//
// There are two devices, null0 and null1, each with one active RoCE v2 port at
// GID index 0: 127.0.0.1 and 127.0.0.2. What is connected is connected within
// the process.
//
// # Modes
//
// In mode [Loopback] the devices work: sends meet posted receives, one-sided
// operations copy, keys and ranges and permissions are checked, errors flush in
// order. In mode [Instant] they are a yardstick: a request costs 64 bytes into a
// ring, a post one fenced doorbell, a signaled request a completion of 64 bytes,
// and nothing is carried; receives complete only when flushed. A context has the
// mode that was set when it was opened; VERBENA_NULLDEV_MODE=instant in the
// environment sets it before anything is called.
//
// # Where loopback differs from a network
//
//   - Work is done within the posting call: a send that can be carried has
//     completed when the post returns. What waits for a receive waits for
//     rnr_retry times the responder's timer (7: for ever), and what waits for a
//     peer that is not ready for (retry_cnt+1) times the timeout (0: for ever),
//     looking again when something changes and not before.
//   - Nothing is lost, so no sequence number is ever wrong but from the start;
//     a message is one packet.
//   - A DREQ is answered at once, whether the peer's program disconnects or not,
//     and TIMEWAIT_EXIT follows DISCONNECTED immediately.
//   - Destroying calls succeed on a dead device, as they do in rdma-core for a
//     device that was unplugged; everything else answers EIO.
//   - Identifiers without an event channel (synchronous ones), default protection
//     domains and completion queues of rdma_create_qp, rdma_getaddrinfo, domains
//     of extended connections named by a file, TSO and tag matching are not
//     there.
//   - Memory on demand is memory; its faults cost nothing. What can be mapped
//     stands for the memory of another device.
//   - Posts of one thread domain that overlap are counted ([Stats].TDRaces), in
//     mode [Loopback]; other libraries end the process.
package nulldev
